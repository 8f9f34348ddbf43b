"""`rlhf-lab plan`: what other settings would take, predicted from the seconds of a run."""

from __future__ import annotations

import argparse

from rlhf_lab.cli.command import OptionsCommand
from rlhf_lab.runs.trackers.console import Console

SETTINGS = "settings to predict, several values with commas: run.passes=1,2 mode=sync,async"


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", nargs="*", metavar="RUN", help="a run that was trained")
    parser.add_argument_group("KEY=VALUE", SETTINGS)


def show(options: argparse.Namespace, console: Console) -> int:
    folder = COMMAND.run_folder(options.words)
    from rlhf_lab.experiment.planning import planner

    planner.show(folder, options.words[1:], console)
    return 0


COMMAND = OptionsCommand(
    "plan",
    "predict other settings from a run's times",
    "runs/RUN mode=async run.passes=1,2",
    usage="RUN [key=value,value ...]",
    add_options=add_options,
    action=show,
)

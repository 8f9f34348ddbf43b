"""`rlhf-lab implicit-reward`: how well a policy that learned from pairs orders other pairs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from rlhf_lab.cli.arguments import overrides_again
from rlhf_lab.cli.command import OptionsCommand
from rlhf_lab.runs.trackers.console import Console

if TYPE_CHECKING:
    from omegaconf import DictConfig


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, metavar="RUN", help="a finished run, as of algo=dpo")


def show(options: argparse.Namespace, console: Console) -> int:
    """Print the accuracies. Returns 0."""
    overrides = overrides_again(options.run, [])
    from rlhf_lab.cli.compose import compose
    from rlhf_lab.experiment import implicit_reward
    from rlhf_lab.experiment.config import typed

    def write(cfg: DictConfig) -> None:
        found = implicit_reward.compare(typed(cfg), options.run, console)
        console.table("held-out pairs", implicit_reward.COLUMNS, found.rows())

    compose(write, overrides)
    return 0


COMMAND = OptionsCommand(
    "implicit-reward",
    "compare a policy's implicit reward with a reward model",
    "runs/RUN",
    usage="RUN",
    add_options=add_options,
    action=show,
)

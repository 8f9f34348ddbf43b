"""Commands of rlhf_lab_analysis, which no package that trains imports: a module there declares the
options and runs them, this one has each command's name and help.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from rlhf_lab.cli.command import OptionsCommand
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.errors import UserError

# What the extra brings; any other missing module is an error of ours.
PACKAGES = ("matplotlib", "pandas", "pyarrow", "scipy", "wandb", "tensorboard")


@contextmanager
def extra_needed() -> Iterator[None]:
    """Around the import of analysis: raises UserError without the extra."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in PACKAGES:
            raise
        raise UserError(
            f"it needs the package {error.name}: pip install 'rlhf-lab[analysis]'"
        ) from error


def analysis_command(
    name: str, summary: str, example: str, usage: str, module: str
) -> OptionsCommand:
    """The command of a module of rlhf_lab_analysis, with its `add_options` and `run`."""

    def loaded() -> Any:
        with extra_needed():
            return import_module(f"rlhf_lab_analysis.{module}")

    def add_options(parser: argparse.ArgumentParser) -> None:
        loaded().add_options(parser)

    def action(options: argparse.Namespace, console: Console) -> int:
        loaded().run(options, console)
        return 0

    return OptionsCommand(
        name,
        summary,
        example,
        usage=usage,
        completes="folders",
        add_options=add_options,
        action=action,
    )


REPORT = analysis_command(
    "report",
    "one page about runs, to read anywhere",
    "runs --out report.html",
    usage="RUNS... [--out report.html] [--title TEXT] [--metric NAME] [--margin NUMBER]",
    module="report.command",
)
PLOT = analysis_command(
    "plot",
    "one figure of any runs: curves, ends, differences, a front",
    "runs -y win_rate",
    usage="RUNS... [-y METRIC ...] [-x AXIS ...] [--diff BASELINE] [--by KEY ...] "
    "[--facet KEY ...] [--ends|--front|--heat|--timeline] [--style FILE] [--out PATH]",
    module="plots.command",
)
FIGURES = analysis_command(
    "figures",
    "the figures of the paper that runs allow, with their numbers",
    "runs/own --out figures",
    usage="RUNS... [--out FOLDER] [--only NAME ...] [--formats png,pdf,svg] [--drift METRIC] "
    "[--style FILE] [--with rliable|openrlbenchmark] [--list]",
    module="plots.paper_command",
)
TABLES = analysis_command(
    "tables",
    "tracked runs as one tidy table, and what is wrong with them",
    "runs/own --out tables.parquet",
    usage="SOURCE... [--metric NAME] [--out FILE.parquet] [--export FOLDER]",
    module="tables.__main__",
)
COMPARE = analysis_command(
    "compare",
    "runs side by side: tables with intervals, and figures",
    "runs/demo",
    usage="RUNS... [--diff BASELINE] [--out FOLDER]",
    module="studies.compare",
)
PUBLICATION_TABLES = analysis_command(
    "publication-tables",
    "tables of results in LaTeX, Markdown and CSV",
    "runs/own --out tables",
    usage="RUNS... --out FOLDER [--only TABLE ...] [--metric METRIC ...] [--baseline KEY=VALUE] "
    "[--margin SIZE] [--style FILE]",
    module="publication_tables.command",
)
CLAIMS = analysis_command(
    "claims",
    "which claims of papers hold, at which scale, and from which runs",
    "runs/off_policy_ladder_nano",
    usage="[SOURCE...] [--only NAME] [--claims FOLDER]",
    module="benchmark.claims",
)

"""`rlhf-lab report`: one page about runs, made by rlhf_lab_analysis.report, which no package that
trains imports."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager

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


def add_options(parser: argparse.ArgumentParser) -> None:
    with extra_needed():
        from rlhf_lab_analysis.report import command
    command.add_options(parser)


def show(options: argparse.Namespace, console: Console) -> int:
    """Write the page. Returns 0."""
    from rlhf_lab_analysis.report import command

    return command.run(options, console)


COMMAND = OptionsCommand(
    "report",
    "one page about runs, to read anywhere",
    "runs --out report.html",
    usage="RUNS... [--out report.html] [--title TEXT] [--metric NAME] [--margin NUMBER] [--by KEY] "
    "[--with rliable|openrlbenchmark]",
    add_options=add_options,
    action=show,
)

"""Commands of rlhf_lab_analysis, which no package that trains imports: a module there declares the
options and runs them, a file beside this one has the command's name and help."""

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
        name, summary, example, usage=usage, add_options=add_options, action=action
    )

"""Run notebooks: write them with outputs into a folder, and without outputs beside their scripts.

python -m rlhf_lab_analysis.notebooks [NAME ...] [--out FOLDER]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.command import exit_code
from rlhf_lab_analysis.notebooks.pairing import scripts, write


def parser() -> argparse.ArgumentParser:
    """The command line."""
    command = argparse.ArgumentParser(
        prog="python -m rlhf_lab_analysis.notebooks",
        description="Run notebooks and write them with outputs.",
    )
    add = command.add_argument
    add("names", nargs="*", metavar="NAME", help="these notebooks alone, such as figure_3 (all)")
    add("--out", type=Path, default=Path("notebooks"), help="folder (default: notebooks)")
    add("--plain", action="store_true", help="only write those beside the scripts, which runs none")
    add("--list", action="store_true", help="list the names of all notebooks")
    return command


def chosen(names: Sequence[str]) -> list[Path]:
    """The scripts with these names, in their order and each once; all without a name.

    Raises UserError for a name that no notebook has, before any is run.
    """
    by_name = {script.stem: script for script in scripts()}
    if unknown := [name for name in names if name not in by_name]:
        raise UserError(
            f"NAME={','.join(unknown)}: there is no such notebook, choose from {', '.join(by_name)}"
        )
    return [by_name[name] for name in dict.fromkeys(names or by_name)]


def run(options: argparse.Namespace, console: Console) -> None:
    """List the notebooks, or write those that are named."""
    folder = None if options.plain else options.out
    for script in chosen(options.names):
        console.print(script.stem if options.list else f"wrote {write(script, folder)}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; exit code 2 for an unknown notebook."""
    options = parser().parse_args(arguments)
    return exit_code("notebooks", lambda: run(options, Console(quiet=False)))


if __name__ == "__main__":
    sys.exit(main())

"""Run notebooks: write them with outputs into a folder, and without outputs beside their scripts.

python -m rlhf_lab_analysis.notebooks [NAME ...] [--out FOLDER]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.command import exit_code
from rlhf_lab_analysis.notebooks.pairing import scripts, write


def run(options: argparse.Namespace) -> None:
    """Write the notebooks that are named; all without a name. Raises UserError for a name that no
    notebook has, before any is run."""
    by_name = {script.stem: script for script in scripts()}
    if unknown := [name for name in options.names if name not in by_name]:
        raise UserError(
            f"NAME={','.join(unknown)}: there is no such notebook, choose from {', '.join(by_name)}"
        )
    for name in dict.fromkeys(options.names or by_name):
        path = write(by_name[name], None if options.plain else options.out)
        sys.stdout.write(f"wrote {path}\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; exit code 2 for an unknown notebook."""
    command = argparse.ArgumentParser(
        prog="python -m rlhf_lab_analysis.notebooks",
        description="Run notebooks and write them with outputs.",
    )
    add = command.add_argument
    add("names", nargs="*", metavar="NAME", help="these notebooks alone (all)")
    add("--out", type=Path, default=Path("notebooks"), help="folder (default: notebooks)")
    add("--plain", action="store_true", help="only write those beside the scripts, which runs none")
    options = command.parse_args(arguments)
    return exit_code("notebooks", lambda: run(options))


if __name__ == "__main__":
    sys.exit(main())

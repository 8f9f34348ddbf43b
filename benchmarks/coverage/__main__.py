"""Simulate how often intervals hold the truth.

python -m benchmarks.coverage [--simulations 4000] [--docs docs/statistics.md]

Of means, differences and IQMs over few seeds (a minute).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.coverage.intervals import TOGETHER, tables
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.command import exit_code
from rlhf_lab_analysis.markdown import publish, split_at_markers


def run(given: argparse.Namespace, console: Console) -> None:
    """Simulate, print the tables, and write them into the page if there is one."""
    number = given.simulations
    if number < TOGETHER or number % TOGETHER:
        raise UserError(
            f"--simulations {number}: pass {TOGETHER} or more, a multiple of {TOGETHER}"
        )
    if given.docs:
        split_at_markers(given.docs)
    caption = (
        f"How often 95% intervals hold the truth, in {number} simulations; after ±, the Monte "
        "Carlo error."
    )
    publish(caption, (), tables(number, given.seed), given.docs, console)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; exit code 2 if an option or the page cannot be used."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.coverage", description=__doc__)
    parser.add_argument("--simulations", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--docs", type=Path, help="page with markers to write the tables into")
    given = parser.parse_args(arguments)
    return exit_code("coverage", lambda: run(given, Console(quiet=False)))


if __name__ == "__main__":
    sys.exit(main())

"""Simulate how often intervals hold the truth.

python -m benchmarks.coverage intervals [--simulations 4000] [--docs docs/statistics.md]
python -m benchmarks.coverage boundary [--simulations 80]

intervals: of means, differences and IQMs over few seeds (a minute). boundary: of the boundary over
staleness and rate (two minutes).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.coverage import boundary, intervals
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.command import exit_code
from rlhf_lab_analysis.markdown import publish, split_at_markers

# The tables, how many simulations they are of, and the number that theirs must be a multiple of.
STUDIES = {
    "intervals": (intervals.tables, 4000, intervals.TOGETHER),
    "boundary": (boundary.tables, 80, 20),
}


def run(given: argparse.Namespace, console: Console) -> None:
    """Simulate, print the tables, and write them into the page if there is one."""
    tables, usual, step = STUDIES[given.study]
    number = usual if given.simulations is None else given.simulations
    if number < step or number % step:
        raise UserError(f"--simulations {number}: pass {step} or more, a multiple of {step}")
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
    parser.add_argument("study", choices=STUDIES)
    parser.add_argument("--simulations", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--docs", type=Path, help="page with markers to write the tables into")
    given = parser.parse_args(arguments)
    return exit_code("coverage", lambda: run(given, Console(quiet=False)))


if __name__ == "__main__":
    sys.exit(main())

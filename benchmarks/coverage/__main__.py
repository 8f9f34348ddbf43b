"""Simulate how often intervals hold the truth.

python -m benchmarks.coverage intervals [--simulations 4000] [--docs docs/statistics.md]
python -m benchmarks.coverage scaling [--simulations 500]
python -m benchmarks.coverage boundary [--simulations 80]

intervals: of means, differences and IQMs over few seeds (a minute). scaling: of the law of scaling
(two minutes). boundary: of the boundary over staleness and rate (two minutes).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.coverage import boundary, intervals, scaling
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.command import exit_code
from rlhf_lab_analysis.markdown import Table, publish, split_at_markers


@dataclass(frozen=True)
class Study:
    """tables: from a number of simulations and a seed. least: fewer simulations are refused, and
    so is what is no multiple of `step`."""

    tables: Callable[[int, int], list[Table]]
    simulations: int
    least: int
    step: int = 1


STUDIES: Mapping[str, Study] = {
    "intervals": Study(intervals.tables, 4000, intervals.TOGETHER, intervals.TOGETHER),
    "scaling": Study(scaling.tables, 500, scaling.LEAST),
    "boundary": Study(boundary.tables, 80, boundary.LEAST),
}


def run(given: argparse.Namespace, console: Console) -> None:
    """Simulate, print the tables, and write them into the page if there is one."""
    begin = time.perf_counter()
    study = STUDIES[given.study]
    number = study.simulations if given.simulations is None else given.simulations
    if number < study.least or number % study.step:
        multiple = f", a multiple of {study.step}" if study.step > 1 else ""
        raise UserError(f"--simulations {number}: pass {study.least} or more{multiple}")
    if given.docs:
        split_at_markers(given.docs)
    caption = (
        f"How often 95% intervals hold the truth, in {number} simulations; after ±, the Monte "
        "Carlo error."
    )
    publish(caption, (), study.tables(number, given.seed), given.docs, console)
    console.print(f"Took {time.perf_counter() - begin:.0f} s.")


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

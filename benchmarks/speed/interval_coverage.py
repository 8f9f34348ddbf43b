"""Simulate how often each method's interval contains the true value, for few seeds.

python -m benchmarks.speed.interval_coverage [--simulations 4000] [--docs FILE]
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.speed.simulated_scores import DISTRIBUTIONS, TOGETHER, Case, cases
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.command import exit_code
from rlhf_lab_analysis.markdown import Table, publish, split_at_markers
from rlhf_lab_analysis.statistics.arrays import generator
from rlhf_lab_analysis.statistics.bootstrap import draws, estimate, leave_one_out
from rlhf_lab_analysis.statistics.intervals import ends
from rlhf_lab_analysis.statistics.results import Method, Options

SEEDS = (3, 5, 10, 20)


@dataclass(frozen=True)
class Row:
    """How often each method's interval held the truth, of so many simulations."""

    case: str
    distribution: str
    seeds: int
    simulations: int
    held: dict[Method, float]

    def error(self, method: Method) -> float:
        """The Monte Carlo standard error of a share."""
        share = self.held[method]
        return math.sqrt(share * (1 - share) / self.simulations)


def held(case: Case, options: Options, purpose: str) -> dict[Method, NDArray[np.bool_]]:
    """Whether each method's interval holds the truth in each of some simulations."""
    statistic = case.statistic(case.drawn(generator(options.seed, "coverage", purpose)))
    point_M = estimate(statistic, case.units)
    drawn_RM = draws(statistic, case.units, options, "coverage", purpose)
    without = leave_one_out(statistic, case.units)
    found = {}
    for method in case.methods:
        low_M, high_M = ends(point_M, drawn_RM, without, replace(options, method=method))
        found[method] = (low_M <= case.truth) & (case.truth <= high_M)
    return found


def coverage(simulations: int, options: Options, seeds: Sequence[int]) -> list[Row]:
    """The share of simulations in which each interval holds the truth.

    Raises UserError unless the simulations are a multiple of those that share their draws.
    """
    if simulations < TOGETHER or simulations % TOGETHER:
        raise UserError(f"simulations={simulations}: pass a multiple of {TOGETHER}")
    rows = []
    for name, distribution in DISTRIBUTIONS.items():
        for number in seeds:
            for case in cases(distribution, number):
                parts = [
                    held(case, options, f"{case.name}, {name}, {number}, {part}")
                    for part in range(simulations // TOGETHER)
                ]
                shares = {
                    method: float(np.concatenate([part[method] for part in parts]).mean())
                    for method in case.methods
                }
                rows.append(Row(case.name, name, number, simulations, shares))
    return rows


def tables(rows: Sequence[Row]) -> list[Table]:
    """A table for each estimate: distributions and methods down, numbers of seeds across."""
    made = []
    for case in dict.fromkeys(row.case for row in rows):
        own = [row for row in rows if row.case == case]
        numbers = list(dict.fromkeys(row.seeds for row in own))
        lines = [
            [name, str(method)]
            + [
                f"{100 * row.held[method]:.1f} ± {100 * row.error(method):.1f}"
                for row in own
                if row.distribution == name
            ]
            for name in dict.fromkeys(row.distribution for row in own)
            for method in next(row.held for row in own if row.distribution == name)
        ]
        columns = ["scores", "interval", *(f"{number} seeds" for number in numbers)]
        made.append(Table(f"{case}: actual coverage, %", columns, lines))
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; exit code 2 if an option or the page cannot be used."""
    parser = argparse.ArgumentParser(description="Actual coverage of the intervals.")
    parser.add_argument("--simulations", type=int, default=4000)
    parser.add_argument("--repetitions", type=int, default=2000)
    parser.add_argument("--level", type=float, default=0.95)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--docs", type=Path, help="page with markers to write the tables into")
    given = parser.parse_args(arguments)
    return exit_code("coverage", lambda: run(given, Console(quiet=False)))


def run(given: argparse.Namespace, console: Console) -> None:
    """Simulate, print the tables, and write them into the page if there is one."""
    begin = time.perf_counter()
    if given.docs:
        split_at_markers(given.docs)
    options = Options(given.level, Method.percentile, given.repetitions, given.seed)
    rows = coverage(given.simulations, options, SEEDS)
    caption = (
        f"How often {100 * given.level:g}% intervals hold the truth, in {given.simulations} "
        f"simulations with {given.repetitions} draws each; after ±, the Monte Carlo error."
    )
    publish(caption, (), tables(rows), given.docs, console)
    console.print(f"Took {time.perf_counter() - begin:.0f} s.")


if __name__ == "__main__":
    sys.exit(main())

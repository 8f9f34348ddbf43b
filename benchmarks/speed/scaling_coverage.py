"""How often the intervals of the law of scaling hold its parameters, and what is refused.

`python -m benchmarks.speed.scaling_coverage`: two minutes. Each seed has a law of its own
around the true one, and noise at each of 8 points. Compute ends before, at and after C_mid.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.command import exit_code
from rlhf_lab_analysis.markdown import Table
from rlhf_lab_analysis.statistics.arrays import generator
from rlhf_lab_analysis.statistics.curves import RunCurve
from rlhf_lab_analysis.statistics.results import Method, Options
from rlhf_lab_analysis.statistics.scaling import fit_law
from rlhf_lab_analysis.statistics.scaling_effects import Moves, compare_laws
from rlhf_lab_analysis.statistics.scaling_runs import SHARES, Law, ScalingRuns

TRUE = Law(0.4, 0.8, 1.5, 20.0)
POINTS, NOISE = 8, 0.01
# Standard deviations between seeds: of R_0, of A, and of log C_mid.
SPREAD = (0.01, 0.02, 0.2)
SEEDS = (3, 5, 8)
ENDS = (0.5, 1.0, 2.0, 3.0, 5.0)
# What a condition changes: A by so much, C_mid by this factor.
CHANGES = ((0.0, 1.0), (0.05, 1.0), (0.0, 2.0), (0.05, 2.0))
LEAST = 20


@dataclass(frozen=True)
class Held:
    """Of some simulations the share that is refused, and of the others the shares in which the
    intervals hold A, B and C_mid."""

    seeds: int
    end: float
    method: Method
    simulations: int
    refused: float
    held: tuple[float, float, float]


def simulated(
    seeds: int, end: float, rng: np.random.Generator, change: tuple[float, float] = (0.0, 1.0)
) -> tuple[ScalingRuns, ScalingRuns]:
    """The runs of a condition with this change, and those of the true law, with the same seeds."""
    x_P = np.linspace(0, end * TRUE.midpoint, POINTS + 1)
    made: tuple[dict[int, RunCurve], dict[int, RunCurve]] = ({}, {})
    for seed in range(seeds):
        start, ceiling, speed = rng.normal(0, SPREAD)
        for runs, (more, factor) in zip(made, (change, (0.0, 1.0)), strict=True):
            law = Law(
                TRUE.start + start,
                TRUE.ceiling + ceiling + more,
                TRUE.exponent,
                TRUE.midpoint * math.exp(speed) * factor,
            )
            runs[seed] = RunCurve(x_P, law.at(x_P) + rng.normal(0, NOISE, len(x_P)))
    return ScalingRuns(made[0], SHARES), ScalingRuns(made[1], SHARES)


def coverage(seeds: int, end: float, options: Options, simulations: int) -> Held:
    """How often the intervals hold the truth."""
    true = (TRUE.ceiling, TRUE.exponent, TRUE.midpoint)
    found = []
    for number in range(simulations):
        rng = generator(options.seed, "law of scaling", f"{seeds} {end} {number}")
        fit = fit_law(simulated(seeds, end, rng)[1], options)
        if not fit.refused:
            estimates = (fit.ceiling, fit.exponent, fit.midpoint)
            found.append(
                [e.low <= value <= e.high for e, value in zip(estimates, true, strict=True)]
            )
    shares = np.mean(found, axis=0) if found else np.full(3, math.nan)
    held = (float(shares[0]), float(shares[1]), float(shares[2]))
    return Held(seeds, end, options.method, simulations, 1 - len(found) / simulations, held)


def moves(seeds: int, change: tuple[float, float], simulations: int, seed: int) -> Counter[Moves]:
    """How often each verdict is given on a condition with this change."""
    made: Counter[Moves] = Counter()
    for number in range(simulations):
        rng = generator(seed, "laws of scaling", f"{seeds} {change} {number}")
        made[compare_laws(*simulated(seeds, ENDS[-1], rng, change)).moves] += 1
    return made


def percent(share: float, number: float) -> str:
    """With its Monte Carlo error; nothing of too few simulations."""
    if math.isnan(share) or number < LEAST:
        return "–"  # noqa: RUF001
    return f"{100 * share:.1f} ± {100 * math.sqrt(share * (1 - share) / number):.1f}"


def coverage_table(rows: Sequence[Held]) -> Table:
    lines = [
        [
            row.method.value,
            str(row.seeds),
            f"{row.end:g}",
            percent(row.refused, row.simulations),
            *(percent(held, row.simulations * (1 - row.refused)) for held in row.held),
        ]
        for row in rows
    ]
    columns = [
        "interval",
        "seeds",
        "compute / C_mid",
        "refused",
        "holds A",
        "holds B",
        "holds C_mid",
    ]
    return Table("law of scaling: shares in %", columns, lines)


def moves_table(simulations: int, seed: int) -> Table:
    lines = []
    for number in SEEDS:
        for change in CHANGES:
            made = moves(number, change, simulations, seed)
            shares = [percent(made[one] / simulations, simulations) for one in Moves]
            lines.append([str(number), f"{change[0]:g}", f"{change[1]:g}", *shares])
    columns = ["seeds", "more A", "C_mid times", *(one.value for one in Moves)]
    return Table("two conditions in pairs: verdicts in %", columns, lines)


def run(given: argparse.Namespace, console: Console) -> None:
    """Simulate, and print the tables in Markdown."""
    if given.simulations < LEAST:
        raise UserError(f"simulations={given.simulations}: pass {LEAST} or more")
    begin = time.perf_counter()
    student = Options(method=Method.t, seed=given.seed)
    drawn = Options(method=Method.percentile, repetitions=1000, seed=given.seed)
    settings = [(n, end, student) for n in SEEDS for end in ENDS]
    settings += [(n, ENDS[-1], drawn) for n in SEEDS[:2]]
    rows = [coverage(n, end, options, given.simulations) for n, end, options in settings]
    for table in (coverage_table(rows), moves_table(given.simulations, given.seed)):
        console.print("\n".join(table.markdown))
    console.print(f"Took {time.perf_counter() - begin:.0f} s.")


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; exit code 2 if an option cannot be used."""
    parser = argparse.ArgumentParser(description="Coverage of the intervals of the law of scaling.")
    parser.add_argument("--simulations", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    return exit_code("scaling_coverage", lambda: run(given, Console(quiet=False)))


if __name__ == "__main__":
    sys.exit(main())

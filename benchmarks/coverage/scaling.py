"""Intervals of the law of scaling, what is refused, and verdicts on two conditions.

Each seed has a law of its own around the true one, and noise at each of 8 points. Compute ends
before, at and after C_mid.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np

from benchmarks.coverage import percent
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
# Of fewer simulations no share is shown.
LEAST = 20
NONE = "–"  # noqa: RUF001


@dataclass(frozen=True)
class Held:
    """The share of simulations that is refused, and of the others the shares in which the intervals
    hold A, B and C_mid."""

    refused: float
    held: tuple[float, ...]


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
    return Held(1 - len(found) / simulations, tuple(map(float, shares)))


def moves(seeds: int, change: tuple[float, float], simulations: int, seed: int) -> Counter[Moves]:
    """How often each verdict is given on a condition with this change."""
    made: Counter[Moves] = Counter()
    for number in range(simulations):
        rng = generator(seed, "laws of scaling", f"{seeds} {change} {number}")
        made[compare_laws(*simulated(seeds, ENDS[-1], rng, change)).moves] += 1
    return made


def coverage_row(seeds: int, end: float, options: Options, simulations: int) -> list[str]:
    found = coverage(seeds, end, options, simulations)
    kept = simulations * (1 - found.refused)
    shares = [percent(share, kept) if kept >= LEAST else NONE for share in found.held]
    refused = percent(found.refused, simulations)
    return [options.method.value, str(seeds), f"{end:g}", refused, *shares]


def tables(simulations: int, seed: int) -> list[Table]:
    """Coverage and refusals, and the verdicts on pairs of conditions."""
    student = Options(method=Method.t, seed=seed)
    drawn = Options(method=Method.percentile, repetitions=1000, seed=seed)
    settings = [(n, end, student) for n in SEEDS for end in ENDS]
    settings += [(n, ENDS[-1], drawn) for n in SEEDS[:2]]
    rows = [coverage_row(*setting, simulations) for setting in settings]
    columns = ["interval", "seeds", "compute / C_mid", "refused", "holds A", "holds B"]
    verdicts = []
    for number in SEEDS:
        for change in CHANGES:
            made = moves(number, change, simulations, seed)
            shares = [percent(made[one] / simulations, simulations) for one in Moves]
            verdicts.append([str(number), f"{change[0]:g}", f"{change[1]:g}", *shares])
    heads = ["seeds", "more A", "C_mid times", *(one.value for one in Moves)]
    return [
        Table("law of scaling: shares in %", [*columns, "holds C_mid"], rows),
        Table("two conditions in pairs: verdicts in %", heads, verdicts),
    ]

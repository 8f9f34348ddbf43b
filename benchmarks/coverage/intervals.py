"""Intervals of means, paired differences and IQMs over few seeds.

Scores have a known true value. Simulations that share their bootstrap draws are computed at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from rlhf_lab_analysis.markdown import Table
from rlhf_lab_analysis.statistics.aggregates import iqm
from rlhf_lab_analysis.statistics.arrays import Floats, generator
from rlhf_lab_analysis.statistics.bootstrap import (
    Statistic,
    Weights,
    draws,
    estimate,
    leave_one_out,
)
from rlhf_lab_analysis.statistics.intervals import ends
from rlhf_lab_analysis.statistics.results import OF_ANY_NUMBER, Method, Options
from rlhf_lab_analysis.statistics.scores import Scores

SEEDS = (3, 5, 10, 20)
REPETITIONS = 2000
IQM_TASKS = 4
# How far tasks lie apart, in standard deviations of a seed.
TASK_STEP = 0.5
# Simulations that share their bootstrap draws; more of them would share more of its error.
TOGETHER = 50
GRID = 200_000
DISTRIBUTIONS = {
    "normal": stats.norm(),
    "skewed (log-normal)": stats.lognorm(0.75),
    # Win-rates near their upper end, of mean 0.85 and standard deviation 0.11.
    "win-rates (beta)": stats.beta(8.5, 1.5),
}


@dataclass(frozen=True)
class Case:
    """What is estimated: its true value, the number of units that are drawn, data of many
    simulations at once, and the statistic. methods: the intervals that it can have."""

    name: str
    truth: float
    units: tuple[int, ...]
    drawn: Callable[[np.random.Generator], Floats]
    statistic: Callable[[Floats], Statistic]
    methods: tuple[Method, ...] = OF_ANY_NUMBER


def means(values_SM: Floats) -> Statistic:
    """The mean over seeds of each of M simulations."""

    def statistic(weights: Weights) -> Floats:
        return np.asarray(weights[0] @ values_SM / weights[0].sum(axis=1, keepdims=True))

    return statistic


def iqms(values_TSM: Floats) -> Statistic:
    """The IQM over tasks and seeds of each of M simulations."""
    scores = Scores("simulated", tuple(values_TSM))

    def statistic(weights: Weights) -> Floats:
        return iqm(scores, scores.pooled(weights))

    return statistic


def middle_mean(distribution: stats.rv_continuous, shifts: Floats) -> float:
    """The mean of the middle half of tasks that are shifted copies of a distribution."""
    grid = distribution.ppf((np.arange(GRID) + 0.5) / GRID)
    pooled = np.sort(np.add.outer(shifts, grid), axis=None)
    return float(pooled[len(pooled) // 4 : -(len(pooled) // 4)].mean())


def cases(distribution: stats.rv_continuous, seeds: int) -> list[Case]:
    """The mean of one task, the mean of paired differences, and the IQM of some tasks."""
    shifts = TASK_STEP * distribution.std() * np.arange(IQM_TASKS)

    def one(rng: np.random.Generator) -> Floats:
        return np.asarray(distribution.rvs((seeds, TOGETHER), random_state=rng))

    def tasks(rng: np.random.Generator) -> Floats:
        return np.stack([one(rng) + shift for shift in shifts])

    def pairs(rng: np.random.Generator) -> Floats:
        """What a seed shares cancels; the second condition varies half as much."""
        return one(rng) - one(rng) / 2

    mean, iqm_name = float(distribution.mean()), f"IQM, {IQM_TASKS} tasks"
    of_shares = (*OF_ANY_NUMBER, Method.logit)
    methods = of_shares if distribution.support() == (0, 1) else OF_ANY_NUMBER
    every = (seeds,) * IQM_TASKS
    return [
        Case("mean, 1 task", mean, (seeds,), one, means, methods),
        Case("paired difference", mean / 2, (seeds,), pairs, means),
        Case(iqm_name, middle_mean(distribution, shifts), every, tasks, iqms),
    ]


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


def shares(case: Case, simulations: int, options: Options, purpose: str) -> dict[Method, float]:
    """The share of simulations in which each interval holds the truth."""
    parts = [held(case, options, f"{purpose}, {n}") for n in range(simulations // TOGETHER)]
    return {m: float(np.concatenate([part[m] for part in parts]).mean()) for m in case.methods}


# Shares by estimate, distribution, number of seeds and method.
Shares = Mapping[tuple[str, str, int], Mapping[Method, float]]


def coverage(simulations: int, options: Options, seeds: Sequence[int]) -> Shares:
    """The shares of every case."""
    return {
        (case.name, name, number): shares(
            case, simulations, options, f"{case.name}, {name}, {number}"
        )
        for name, distribution in DISTRIBUTIONS.items()
        for number in seeds
        for case in cases(distribution, number)
    }


def percent(share: float, number: int) -> str:
    """A share of so many simulations in percent, with its Monte Carlo error."""
    return f"{100 * share:.1f} ± {100 * (share * (1 - share) / number) ** 0.5:.1f}"


def tables(simulations: int, seed: int) -> list[Table]:
    """A table for each estimate: distributions and methods down, numbers of seeds across."""
    options = Options(method=Method.percentile, repetitions=REPETITIONS, seed=seed)
    found = coverage(simulations, options, SEEDS)
    made = []
    for case in dict.fromkeys(name for name, _, _ in found):
        rows = [
            [scores, str(method)]
            + [percent(found[case, scores, number][method], simulations) for number in SEEDS]
            for scores in DISTRIBUTIONS
            for method in found[case, scores, SEEDS[0]]
        ]
        columns = ["scores", "interval", *(f"{number} seeds" for number in SEEDS)]
        made.append(Table(f"{case}: actual coverage, %", columns, rows))
    return made

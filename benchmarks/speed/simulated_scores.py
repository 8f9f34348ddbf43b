"""Simulate scores with a known true value: distributions, and statistics estimated from them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import stats

from rlhf_lab_analysis.statistics.aggregates import iqm
from rlhf_lab_analysis.statistics.arrays import Floats
from rlhf_lab_analysis.statistics.bootstrap import Statistic, Weights
from rlhf_lab_analysis.statistics.results import OF_ANY_NUMBER, Method
from rlhf_lab_analysis.statistics.scores import Resampling, Scores

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
    """What is estimated: data of many simulations at once, its truth, and the statistic. of_share:
    whether it lies from 0 to 1."""

    name: str
    truth: float
    units: tuple[int, ...]
    drawn: Callable[[np.random.Generator], Floats]
    statistic: Callable[[Floats], Statistic]
    of_share: bool = False

    @property
    def methods(self) -> tuple[Method, ...]:
        """The intervals that can be made of it."""
        return (*OF_ANY_NUMBER, Method.logit) if self.of_share else OF_ANY_NUMBER


def means(values_SM: Floats) -> Statistic:
    """The mean over seeds of each of M simulations."""

    def statistic(weights: Weights) -> Floats:
        return np.asarray(weights[0] @ values_SM / weights[0].sum(axis=1, keepdims=True))

    return statistic


def iqms(values_TSM: Floats) -> Statistic:
    """The IQM over tasks and seeds of each of M simulations."""
    scores = Scores("simulated", tuple(values_TSM), Resampling.seeds_within_tasks)

    def statistic(weights: Weights) -> Floats:
        return iqm(scores, scores.pooled(weights))

    return statistic


def middle_mean(distribution: stats.rv_continuous, shifts: Floats) -> float:
    """The mean of the middle half of tasks that are shifted copies of a distribution."""
    grid = distribution.ppf((np.arange(GRID) + 0.5) / GRID)
    pooled = np.sort(np.add.outer(shifts, grid), axis=None)
    return float(pooled[len(pooled) // 4 : -(len(pooled) // 4)].mean())


def cases(distribution: stats.rv_continuous, seeds: int) -> list[Case]:
    """The mean of one task, the IQM of some, and the mean of paired differences."""
    shifts = TASK_STEP * distribution.std() * np.arange(IQM_TASKS)
    size = (seeds, TOGETHER)

    def one(rng: np.random.Generator) -> Floats:
        return np.asarray(distribution.rvs(size, random_state=rng))

    def tasks(rng: np.random.Generator) -> Floats:
        return np.stack([one(rng) + shift for shift in shifts])

    def pairs(rng: np.random.Generator) -> Floats:
        """What a seed shares cancels; the second condition varies half as much."""
        return one(rng) - one(rng) / 2

    mean = float(distribution.mean())
    return [
        Case("mean, 1 task", mean, (seeds,), one, means, of_share=distribution.support() == (0, 1)),
        Case("paired difference", mean / 2, (seeds,), pairs, means),
        Case(
            f"IQM, {IQM_TASKS} tasks",
            middle_mean(distribution, shifts),
            (seeds,) * IQM_TASKS,
            tasks,
            iqms,
        ),
    ]

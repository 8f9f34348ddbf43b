"""Resample seeds: a statistic is a function of how often each seed counts.

A bootstrap draw counts seeds 0, 1, 2, ... times, the jackknife leaves one out, and the estimate
counts each once. So a statistic is written once, for R weightings side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from rlhf_lab_analysis.statistics.arrays import Floats, generator
from rlhf_lab_analysis.statistics.intervals import ends
from rlhf_lab_analysis.statistics.results import (
    WITHOUT_DRAWS,
    Basis,
    Estimate,
    Method,
    Options,
)

# For each stratum, weights of shape (R, units).
Weights: TypeAlias = Sequence[Floats]
# From the weights of R draws to M numbers of each: (R, M).
Statistic: TypeAlias = Callable[[Weights], Floats]

# Weights that are held at a time: what fits into the cache of a core (measured).
BLOCK = 1 << 16


@dataclass(frozen=True, eq=False)
class Interval:
    """Estimates and the ends of their intervals, each (M,)."""

    point_M: Floats
    low_M: Floats
    high_M: Floats

    def estimate(self, name: str, basis: Basis, column: int = 0) -> Estimate:
        """One of the numbers as a result."""
        point, low, high = (
            float(values[column]) for values in (self.point_M, self.low_M, self.high_M)
        )
        return Estimate(name, point, low, high, basis)


def count_draws(units: Sequence[int], rows: int, rng: np.random.Generator) -> Weights:
    """How often each unit is drawn when each stratum is drawn anew with replacement."""
    sizes = np.repeat(units, units).astype(np.float32)
    begins = np.repeat(np.cumsum([0, *units[:-1]]), units).astype(np.int32)
    total = len(sizes)
    drawn = (rng.random((rows, total), dtype=np.float32) * sizes).astype(np.int32)
    drawn += begins
    drawn += np.arange(0, rows * total, total, dtype=np.int32)[:, None]
    counts = np.bincount(drawn.ravel(), minlength=rows * total).astype(np.float64)
    return np.split(counts.reshape(rows, total), np.cumsum(units)[:-1], axis=1)


def blocks(units: Sequence[int], repetitions: int, rng: np.random.Generator) -> Iterator[Weights]:
    """Weights of all draws, some at a time."""
    at_once = max(1, BLOCK // sum(units))
    for begin in range(0, repetitions, at_once):
        yield count_draws(units, min(at_once, repetitions - begin), rng)


def draws(statistic: Statistic, units: Sequence[int], options: Options, *purpose: str) -> Floats:
    """The statistic of bootstrap draws within each stratum: (R, M)."""
    rng = generator(options.seed, "bootstrap", *purpose)
    return np.concatenate(
        [statistic(weights) for weights in blocks(units, options.repetitions, rng)]
    )


def estimate(statistic: Statistic, units: Sequence[int]) -> Floats:
    """The statistic of the seeds as they are: (M,)."""
    return np.asarray(statistic([np.ones((1, size)) for size in units])[0])


def leave_one_out(statistic: Statistic, units: Sequence[int]) -> list[Floats]:
    """The statistic without each unit in turn: for each stratum (units, M)."""
    found = []
    for place, size in enumerate(units):
        weights = [np.ones((size, other)) for other in units]
        weights[place] -= np.eye(size)
        found.append(statistic(weights))
    return found


def interval(
    statistic: Statistic, units: Sequence[int], options: Options, *purpose: str
) -> Interval:
    """Estimate and interval by the method that the options name."""
    point_M = estimate(statistic, units)
    none = np.empty((0, len(point_M)))
    is_drawn = options.method not in WITHOUT_DRAWS
    is_left_out = options.method is not Method.percentile
    low_M, high_M = ends(
        point_M,
        draws(statistic, units, options, *purpose) if is_drawn else none,
        leave_one_out(statistic, units) if is_left_out else (),
        options,
    )
    return Interval(point_M, low_M, high_M)

"""Compare win-rates at equal KL, by the best win-rate that each run has up to a KL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from rlhf_lab_analysis.statistics.arrays import Floats, require_finite, same_length
from rlhf_lab_analysis.statistics.bootstrap import Interval, Weights, interval
from rlhf_lab_analysis.statistics.contrasts import seeds_to_pair
from rlhf_lab_analysis.statistics.curves import RunCurve, areas, common_grid, values_on_grid
from rlhf_lab_analysis.statistics.results import (
    Band,
    Basis,
    Estimate,
    Options,
    require_seeds,
    size_warnings,
)

# Below this share of the KL that was visited, a distance is about a small part of the frontiers.
LITTLE_IN_COMMON = 0.5
FrontiersBySeed = Mapping[int, RunCurve]


@dataclass(frozen=True)
class FrontierDistance:
    """By how much the first is above the second at equal KL.

    mean: over the common KL; band: at points of it; low, high: its ends; share: how much of all KL
    that any run visited is common.
    """

    mean: Estimate
    band: Band
    low: float
    high: float
    share: float
    is_paired: bool

    @property
    def warnings(self) -> tuple[str, ...]:
        return self.mean.warnings


def frontier_of(name: str, kl: ArrayLike, quality: ArrayLike) -> RunCurve:
    """The best quality that a run has at each KL or below it, in the order of KL.

    Evaluations that an earlier one with less KL beats leave a level stretch. Raises UserError for
    NaN or different lengths.
    """
    kl_P, quality_P = (
        require_finite(f"{name} KL", kl, (1,)),
        require_finite(f"{name} quality", quality, (1,)),
    )
    same_length(**{f"{name} KL": kl_P, f"{name} quality": quality_P})
    order = np.lexsort((quality_P, kl_P))
    best = np.maximum.accumulate(quality_P[order])
    is_last = np.append(np.diff(kl_P[order]) > 0, True)
    return RunCurve(kl_P[order][is_last], best[is_last])


def frontier_distance(
    first: FrontiersBySeed, second: FrontiersBySeed, options: Options, points: int = 20
) -> FrontierDistance:
    """First less second over the KL that all runs of both visited, in pairs of the seeds that both
    have where there are enough of them.

    Nothing is extrapolated: straight lines join evaluations within the common KL alone. Raises
    UserError if no KL is common, or for one seed.
    """
    for name, given in (("first", first), ("second", second)):
        require_seeds(name, [len(given)])
    paired = seeds_to_pair(first, second)
    sides = [[given[seed] for seed in paired or sorted(given)] for given in (first, second)]
    everything = [*sides[0], *sides[1]]
    grid = common_grid(everything, points)
    low, high = float(grid[0]), float(grid[-1])
    visited = max(curve.end for curve in everything) - min(curve.begin for curve in everything)
    share = (high - low) / visited
    heights = [heights_of(side, grid) for side in sides]
    made = contrast(heights, bool(paired), options)
    notes: tuple[str, ...] = () if paired else ("seeds differ: drawn independently",)
    if paired and (odd := sorted({*first} ^ {*second})):
        notes = (f"left out of the pairs, as one condition alone has them: seeds {odd}",)
    if share < LITTLE_IN_COMMON:
        notes += (f"only {share:.0%} of the KL that was visited is common to all runs",)
    sizes = tuple(len(side) for side in sides)
    basis = Basis(sizes, 1, options, (*size_warnings(sizes, options.method), *notes))
    inner = Interval(made.point_M[:-1], made.low_M[:-1], made.high_M[:-1])
    return FrontierDistance(
        made.estimate("mean distance at matched KL", basis, -1),
        inner.band("distance at matched KL", grid, basis),
        low,
        high,
        share,
        bool(paired),
    )


def heights_of(curves: list[RunCurve], grid: Floats) -> Floats:
    """At each point of the grid, and at last the mean over its range: (S, F + 1)."""
    whole, _ = areas(curves, (float(grid[0]), float(grid[-1])))
    return np.concatenate([values_on_grid(curves, grid), whole[:, None]], axis=1)


def contrast(heights: list[Floats], is_paired: bool, options: Options) -> Interval:
    """The difference of means of each column."""
    parts = [heights[0] - heights[1]] if is_paired else heights

    def statistic(weights: Weights) -> Floats:
        means = [
            (weight @ part) / weight.sum(axis=1, keepdims=True)
            for weight, part in zip(weights, parts, strict=True)
        ]
        return np.asarray(means[0] if is_paired else means[0] - means[1])

    return interval(statistic, [len(part) for part in parts], options, "frontier distance")

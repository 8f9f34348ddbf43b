"""Pareto fronts of cost and win-rate: which conditions are on the front, in how many draws."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.statistics.aggregates import MEASURES, warnings_of
from rlhf_lab_analysis.statistics.arrays import Floats, require_finite
from rlhf_lab_analysis.statistics.bootstrap import Weights, draws, estimate, leave_one_out
from rlhf_lab_analysis.statistics.intervals import ends
from rlhf_lab_analysis.statistics.results import (
    Basis,
    Estimate,
    Options,
    require_seeds,
    size_warnings,
)
from rlhf_lab_analysis.statistics.scores import Scores, scores_of

# For each seed of a condition (cost, quality).
Costs = Mapping[int, tuple[float, float]]


@dataclass(frozen=True)
class FrontPoint:
    """The measure of cost and quality over seeds with their intervals, whether the condition is on
    the front of these, and in which share of draws it is."""

    condition: str
    cost: Estimate
    quality: Estimate
    is_on_front: bool
    membership: float


@dataclass(frozen=True)
class Front:
    """All conditions by cost, and the area that they dominate up to the reference. measure: of
    costs and qualities over seeds."""

    points: tuple[FrontPoint, ...]
    reference: tuple[float, float]
    hypervolume: Estimate
    is_paired: bool
    measure: str

    @property
    def warnings(self) -> tuple[str, ...]:
        return self.hypervolume.warnings


def is_on_front(cost_RC: Floats, quality_RC: Floats) -> NDArray[np.bool_]:
    """Which conditions no other one dominates: none is as cheap and as good, and one of both more.

    Shape (R, C).
    """
    no_dearer = cost_RC[:, None, :] <= cost_RC[:, :, None]
    no_worse = quality_RC[:, None, :] >= quality_RC[:, :, None]
    differs = (cost_RC[:, None, :] < cost_RC[:, :, None]) | (
        quality_RC[:, None, :] > quality_RC[:, :, None]
    )
    return np.asarray(~(no_dearer & no_worse & differs).any(axis=2))


def hypervolume(cost_RC: Floats, quality_RC: Floats, reference: tuple[float, float]) -> Floats:
    """The area between the front and the reference (largest cost, least quality): (R,).

    What is dearer or worse than the reference adds nothing.
    """
    order = np.argsort(cost_RC, axis=1, kind="stable")
    cost = np.minimum(np.take_along_axis(cost_RC, order, axis=1), reference[0])
    height = np.take_along_axis(quality_RC, order, axis=1) - reference[1]
    best = np.maximum.accumulate(np.maximum(height, 0), axis=1)
    edge = np.full((len(cost), 1), reference[0])
    return np.asarray((best * np.diff(np.concatenate([cost, edge], axis=1), axis=1)).sum(axis=1))


def check_conditions(conditions: Mapping[str, Costs]) -> dict[str, Scores]:
    """For each condition cost and quality as two frames, in the order of its seeds."""
    if len(conditions) < 2:
        raise UserError(f"{len(conditions)} conditions: a front needs at least 2")
    found = {}
    for name, costs in conditions.items():
        require_seeds(name, [len(costs)])
        values_S2 = require_finite(name, [costs[seed] for seed in sorted(costs)], (2,))
        if values_S2.shape[1] != 2:
            raise UserError(f"{name}: pass a pair (cost, quality) for each seed")
        # Of one task, whose seeds stay in order: draws of all conditions go together.
        found[name] = replace(scores_of(name, {"": values_S2}), tasks=(values_S2,))
    return found


def front(
    conditions: Mapping[str, Costs],
    reference: tuple[float, float],
    options: Options,
    measure: str = "iqm",
) -> Front:
    """The Pareto front of a measure over seeds (`iqm`, `mean`), with intervals of each condition on
    both axes, membership and hypervolume, all over the same draws of seeds.

    A seed's cost and quality stay together; if all conditions have the same seeds, they are drawn
    together as well. reference: the cost and the quality beyond which nothing counts. Raises
    UserError for less than two conditions or seeds, and for an unknown measure.
    """
    if measure not in MEASURES:
        raise UserError(f"measure={measure}: pass one of {', '.join(MEASURES)}")
    aggregate = MEASURES[measure]
    scores = check_conditions(conditions)
    worst = require_finite("reference", reference, (1,))
    at = (float(worst[0]), float(worst[1]))
    is_paired = len({tuple(sorted(costs)) for costs in conditions.values()}) == 1
    sizes = tuple(one.seeds[0] for one in scores.values())
    units = sizes[:1] if is_paired else sizes
    many = len(scores)

    def statistic(weights: Weights) -> Floats:
        """Of C conditions their costs, their qualities, who is on the front, and its volume."""
        each = [*weights] * many if is_paired else weights
        pairs_RC2 = np.stack(
            [aggregate(one, w_RS.T) for w_RS, one in zip(each, scores.values(), strict=True)],
            axis=1,
        )
        cost_RC, quality_RC = np.moveaxis(pairs_RC2, 2, 0)
        volume_R1 = hypervolume(cost_RC, quality_RC, at)[:, None]
        on_RC = is_on_front(cost_RC, quality_RC)
        return np.concatenate([cost_RC, quality_RC, on_RC, volume_R1], axis=1)

    drawn_RM = draws(statistic, units, options, "front")
    point_M = estimate(statistic, units)
    # Who is on the front is counted over draws, and has no interval.
    has_ends = np.r_[: 2 * many, 3 * many]
    without = [each[:, has_ends] for each in leave_one_out(statistic, units)]
    low, high = ends(point_M[has_ends], drawn_RM[:, has_ends], without, options)
    notes = () if is_paired else ("conditions have different seeds: drawn independently",)
    bases = [one.basis(options, *warnings_of(measure, one, options)) for one in scores.values()]

    def found(name: str, place: int, basis: Basis) -> Estimate:
        end = min(place, 2 * many)
        return Estimate(name, float(point_M[place]), float(low[end]), float(high[end]), basis)

    points = [
        FrontPoint(
            name,
            found(measure, place, bases[place]),
            found(measure, many + place, bases[place]),
            bool(point_M[2 * many + place]),
            float(drawn_RM[:, 2 * many + place].mean()),
        )
        for place, name in enumerate(scores)
    ]
    whole = Basis(sizes, 1, options, (*size_warnings(sizes, options.method), *notes))
    return Front(
        tuple(sorted(points, key=lambda point: (point.cost.point, point.condition))),
        at,
        found("hypervolume", 3 * many, whole),
        is_paired,
        measure,
    )

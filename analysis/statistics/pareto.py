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
    """All conditions by cost. is_paired: all have the same seeds, which are drawn together."""

    points: tuple[FrontPoint, ...]
    is_paired: bool
    warnings: tuple[str, ...]


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


def front(conditions: Mapping[str, Costs], options: Options, measure: str = "iqm") -> Front:
    """The Pareto front of a measure over seeds (`iqm`, `mean`), with intervals of each condition on
    both axes and membership, all over the same draws of seeds.

    A seed's cost and quality stay together; if all conditions have the same seeds, they are drawn
    together as well. Raises UserError for less than two conditions or seeds, and for an unknown
    measure.
    """
    if measure not in MEASURES:
        raise UserError(f"measure={measure}: pass one of {', '.join(MEASURES)}")
    aggregate = MEASURES[measure]
    scores = check_conditions(conditions)
    is_paired = len({tuple(sorted(costs)) for costs in conditions.values()}) == 1
    sizes = tuple(one.seeds[0] for one in scores.values())
    units = sizes[:1] if is_paired else sizes
    many = len(scores)

    def statistic(weights: Weights) -> Floats:
        """Of C conditions their costs and their qualities, (R, 2 C)."""
        each = [*weights] * many if is_paired else weights
        pairs = zip(each, scores.values(), strict=True)
        pairs_RC2 = np.stack([aggregate(one, w_RS.T) for w_RS, one in pairs], axis=1)
        return np.concatenate([*np.moveaxis(pairs_RC2, 2, 0)], axis=1)

    def on_front(found_RM: Floats) -> NDArray[np.bool_]:
        return is_on_front(found_RM[:, :many], found_RM[:, many:])

    drawn_RM = draws(statistic, units, options, "front")
    point_M = estimate(statistic, units)
    low_M, high_M = ends(point_M, drawn_RM, leave_one_out(statistic, units), options)
    held_C, members_C = on_front(point_M[None])[0], on_front(drawn_RM).mean(axis=0)
    points = []
    for place, (name, one) in enumerate(scores.items()):
        basis = one.basis(options, *warnings_of(measure, one, options))
        cost, quality = (
            Estimate(measure, float(point_M[at]), float(low_M[at]), float(high_M[at]), basis)
            for at in (place, many + place)
        )
        is_held, membership = bool(held_C[place]), float(members_C[place])
        points.append(FrontPoint(name, cost, quality, is_held, membership))
    notes = () if is_paired else ("conditions have different seeds: drawn independently",)
    return Front(
        tuple(sorted(points, key=lambda point: (point.cost.point, point.condition))),
        is_paired,
        (*size_warnings(sizes, options.method), *notes),
    )

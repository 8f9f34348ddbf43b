"""Pareto fronts of cost and win-rate: which conditions are on the front, in how many draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rlhf_lab.types.errors import UserError
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

# For each seed of a condition (cost, quality).
Costs = Mapping[int, tuple[float, float]]


@dataclass(frozen=True)
class FrontPoint:
    """Means over seeds, whether they are on the front, and in which share of draws."""

    condition: str
    cost: float
    quality: float
    is_on_front: bool
    membership: float


@dataclass(frozen=True)
class Front:
    """All conditions by cost, and the area that they dominate up to the reference."""

    points: tuple[FrontPoint, ...]
    reference: tuple[float, float]
    hypervolume: Estimate
    is_paired: bool

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


def check_conditions(conditions: Mapping[str, Costs]) -> dict[str, Floats]:
    """For each condition (seeds, 2), in the order of its seeds."""
    if len(conditions) < 2:
        raise UserError(f"{len(conditions)} conditions: a front needs at least 2")
    found = {}
    for name, costs in conditions.items():
        require_seeds(name, [len(costs)])
        found[name] = require_finite(name, [costs[seed] for seed in sorted(costs)], (2,))
        if found[name].shape[1] != 2:
            raise UserError(f"{name}: pass a pair (cost, quality) for each seed")
    return found


def front(
    conditions: Mapping[str, Costs], reference: tuple[float, float], options: Options
) -> Front:
    """The Pareto front of means, with membership and hypervolume over draws of seeds.

    A seed's cost and quality stay together; if all conditions have the same seeds, they are drawn
    together as well. reference: the cost and the quality beyond which nothing counts.
    """
    values = check_conditions(conditions)
    worst = require_finite("reference", reference, (1,))
    at = (float(worst[0]), float(worst[1]))
    is_paired = len({tuple(sorted(costs)) for costs in conditions.values()}) == 1
    sizes = tuple(len(each) for each in values.values())
    units = sizes[:1] if is_paired else sizes

    def means(weights: Weights) -> Floats:
        each = [*weights] * len(values) if is_paired else weights
        return np.stack(
            [
                (weight @ value) / weight.sum(axis=1, keepdims=True)
                for weight, value in zip(each, values.values(), strict=True)
            ],
            axis=1,
        )

    def statistic(weights: Weights) -> Floats:
        cost_RC, quality_RC = np.moveaxis(means(weights), 2, 0)
        volume_R = hypervolume(cost_RC, quality_RC, at)
        return np.concatenate([is_on_front(cost_RC, quality_RC), volume_R[:, None]], axis=1)

    drawn_RM = draws(statistic, units, options, "front")
    point_M = estimate(statistic, units)
    without = [each[:, -1:] for each in leave_one_out(statistic, units)]
    low, high = (float(end[0]) for end in ends(point_M[-1:], drawn_RM[:, -1:], without, options))
    notes = () if is_paired else ("conditions have different seeds: drawn independently",)
    basis = Basis(sizes, 1, options, (*size_warnings(sizes, options.method), *notes))
    return Front(
        in_order(list(values), means([np.ones((1, size)) for size in units])[0], point_M, drawn_RM),
        at,
        Estimate("hypervolume", float(point_M[-1]), low, high, basis),
        is_paired,
    )


def in_order(
    names: Sequence[str], means_C2: Floats, point_M: Floats, drawn_RM: Floats
) -> tuple[FrontPoint, ...]:
    """The conditions, the cheapest first."""
    found = [
        FrontPoint(
            name,
            float(means_C2[place, 0]),
            float(means_C2[place, 1]),
            bool(point_M[place]),
            float(drawn_RM[:, place].mean()),
        )
        for place, name in enumerate(names)
    ]
    return tuple(sorted(found, key=lambda point: (point.cost, point.condition)))

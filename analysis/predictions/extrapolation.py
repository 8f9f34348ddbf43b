"""Shares at settings that were not run, and the score of an interval that was given for one.

A share is extrapolated by a straight line of its log odds over any number, or by the law of scaling
over compute. The interval is of the mean of as many runs that are yet to be made: it is that over
seeds on log odds, wider by the root of two, since those runs have a spread of their own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.statistics.arrays import Floats
from rlhf_lab_analysis.statistics.bootstrap import Statistic, Weights, interval
from rlhf_lab_analysis.statistics.results import (
    Basis,
    Estimate,
    Method,
    Options,
    require_seeds,
    size_warnings,
)
from rlhf_lab_analysis.statistics.scaling_runs import Law, ScalingRuns

BY_SEED = Mapping[int, float]


@dataclass(frozen=True)
class Point:
    """A setting that was run: its number, which a line runs over, and the share of each seed."""

    at: float
    shares: BY_SEED


def by_line(points: Sequence[Point], to: float, level: float) -> Estimate:
    """The share at `to` by the least-squares line of the log odds of means over common seeds.

    Raises UserError unless there are two settings and two common seeds, and 0 < mean < 1.
    """
    if len({point.at for point in points}) < 2:
        raise UserError("a line needs two settings at least: name more in `from`")
    seeds = sorted(set.intersection(*(set(point.shares) for point in points)))
    share_PS = np.array([[point.shares[seed] for seed in seeds] for point in points])
    at_P = np.array([point.at for point in points])

    def statistic(weights: Weights) -> Floats:
        mean_RP = weights[0] @ share_PS.T / weights[0].sum(axis=1, keepdims=True)
        if not ((mean_RP > 0) & (mean_RP < 1)).all():
            raise UserError("a share of 0 or 1 has no log odds: leave that setting out")
        slope_R, level_R = np.polyfit(at_P, special.logit(mean_RP).T, 1)
        return np.asarray(special.expit(slope_R * to + level_R))[:, None]

    return predicted("line of log odds", statistic, seeds, level)


def by_law(runs: ScalingRuns, to: float, level: float) -> Estimate:
    """The share at a compute by the law that is fitted to the runs of all seeds."""

    def statistic(weights: Weights) -> Floats:
        found = []
        for weight_S in weights[0]:
            ceiling, *logs = runs.parameters(weight_S)
            start = float(weight_S @ runs.start_S / weight_S.sum())
            exponent, midpoint = map(float, np.exp(logs))
            law = Law(start, float(ceiling), exponent, midpoint)
            found.append(law.at(np.array([to])))
        return np.array(found)

    return predicted("law of scaling", statistic, runs.seeds, level)


def predicted(name: str, statistic: Statistic, seeds: Sequence[int], level: float) -> Estimate:
    """A share with its interval for the mean of as many runs that are yet to be made."""
    require_seeds(name, [len(seeds)])
    options = Options(level, Method.logit)
    notes = size_warnings([len(seeds)], options.method)
    basis = Basis((len(seeds),), 1, options, notes)
    made = interval(statistic, [len(seeds)], options, name).estimate(name, basis)
    middle, *ends = (float(special.logit(x)) for x in (made.point, made.low, made.high))
    low, high = (float(special.expit(middle + math.sqrt(2) * (end - middle))) for end in ends)
    return Estimate(name, made.point, low, high, basis)


def interval_score(low: float, high: float, level: float, outcome: float) -> float:
    """The interval score of Gneiting and Raftery 2007 (section 6.2), the smaller the better: the
    width, and 2 / (1 - level) for each unit by which the outcome is missed."""
    missed = max(low - outcome, outcome - high, 0.0)
    return high - low + 2 / (1 - level) * missed

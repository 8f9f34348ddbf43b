"""The boundary between stable and collapsed runs over staleness S and learning rate.

Stale samples bound the rate by a constant over S, and the length of the run by a constant of its
own (arXiv:2607.01083: eta << min(R_batch / (S G), R_crit / (T G))). So the largest stable rate
falls as 1 / S where staleness binds, and is flat below that. Two forms are fitted to the logarithm
of the largest stable rate: a line in log(S + s0), whose slope is -1 by the law and 0 where it is
flat, and the rule of two constants, whose bend is the binding staleness. Each (seed, S) is one
threshold, known to lie between two rates of the grid.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from scipy import stats

from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.statistics.arrays import Floats
from rlhf_lab_analysis.statistics.thresholds import (
    Censored,
    ThresholdFit,
    fit_thresholds,
    profile_interval,
    small_sample_factor,
)

LAW, FLAT = -1.0, 0.0
# Values of S with a threshold between two rates that a slope needs.
LEAST_STALENESS = 2
# Points of the profile over the logarithm of the binding staleness, and how far beyond the grid.
BENDS, BEYOND = 49, 0.7


@dataclass(frozen=True)
class Trial:
    """A run: its seed, staleness and learning rate, and whether it collapsed."""

    seed: int
    staleness: float
    rate: float
    has_collapsed: bool


@dataclass(frozen=True)
class Threshold:
    """Between which rates the largest stable rate of a seed at a staleness lies: 0 if no run was
    stable, infinite if none collapsed."""

    seed: int
    staleness: float
    stable: float
    collapsed: float


class Shape(StrEnum):
    """What the interval of the slope shows."""

    law = "falls as 1 / S"
    flat = "flat in S"
    between = "falls more slowly than 1 / S"
    steeper = "falls faster than 1 / S"
    rises = "rises with S"
    not_told = "neither the law nor flat is excluded"


@dataclass(frozen=True)
class Interval:
    """A number and the ends of its profile-likelihood interval."""

    point: float
    low: float
    high: float


@dataclass(frozen=True)
class Boundary:
    """The largest stable rate by staleness.

    slope: of its logarithm on log(S + s0), whose law is -1. rates: at each S the rate of the fitted
    line. scale: of the logistic noise of the logarithms. binding: the S at which the two constants
    meet; its ends are 0 or infinite where the grid does not show one. line_p, rule_p: p-values of
    the likelihood-ratio tests of the line and of the two constants against a free threshold at each
    S; NaN of fewer than 3 values of S, and of one seed.
    """

    slope: Interval
    rates: dict[float, Interval]
    scale: float
    binding: Interval
    line_p: float
    rule_p: float
    level: float
    warnings: tuple[str, ...]

    @property
    def shape(self) -> Shape:
        low, high = self.slope.low, self.slope.high
        has_law, is_flat = low <= LAW <= high, low <= FLAT <= high
        if has_law == is_flat:
            inside = low > LAW and high < FLAT
            return Shape.between if inside else self._beyond
        return Shape.law if has_law else Shape.flat

    @property
    def _beyond(self) -> Shape:
        if self.slope.high < LAW:
            return Shape.steeper
        return Shape.rises if self.slope.low > FLAT else Shape.not_told


def thresholds_of(trials: Sequence[Trial]) -> tuple[list[Threshold], tuple[str, ...]]:
    """The threshold of each seed and S: below its smallest rate that collapsed, above the largest
    stable one below that. Warnings name those that are stable above a rate that collapsed."""
    groups: dict[tuple[float, int], list[Trial]] = {}
    for trial in trials:
        groups.setdefault((trial.staleness, trial.seed), []).append(trial)
    found, odd = [], []
    for (staleness, seed), runs in sorted(groups.items()):
        fallen = min((run.rate for run in runs if run.has_collapsed), default=math.inf)
        stable = [run.rate for run in runs if not run.has_collapsed]
        found.append(
            Threshold(seed, staleness, max((r for r in stable if r < fallen), default=0.0), fallen)
        )
        odd += [f"S={staleness:g} seed {seed}"] if max(stable, default=0.0) > fallen else []
    text = f"stable above a rate that collapsed, which is taken for the boundary: {', '.join(odd)}"
    return found, (text,) if odd else ()


def reason_against(thresholds: Sequence[Threshold]) -> str:
    """Why no boundary can be fitted; empty if one can."""
    known = {one.staleness for one in thresholds if one.stable > 0 and one.collapsed < math.inf}
    if len(known) >= LEAST_STALENESS:
        return ""
    stable = sum(one.collapsed == math.inf for one in thresholds)
    fallen = sum(one.stable == 0 for one in thresholds)
    return (
        f"{len(known)} values of S have stable and collapsed runs of one seed, {LEAST_STALENESS} "
        f"are needed (of {len(thresholds)} pairs of seed and S, {stable} have no collapse and "
        f"{fallen} no stable run): train at larger or smaller rates"
    )


def boundary(trials: Sequence[Trial], s0: float = 1.0, level: float = 0.95) -> Boundary:
    """Fit the boundary to collapsed and stable runs. s0 is added to S in the line, so that S = 0
    has a logarithm.

    Raises UserError where the grid does not hold the boundary (`reason_against`), or S + s0 is not
    above 0.
    """
    thresholds, warnings = thresholds_of(trials)
    if reason := reason_against(thresholds):
        raise UserError(reason)
    staleness_N = np.array([one.staleness for one in thresholds])
    if staleness_N.min() + s0 <= 0:
        raise UserError(f"s0={s0:g}: S + s0 must be above 0, pass 1")
    with np.errstate(divide="ignore"):
        data = Censored(
            np.log([one.stable for one in thresholds]),
            np.log([one.collapsed for one in thresholds]),
        )
    x_N = np.log(staleness_N + s0)
    line = np.stack([np.ones_like(x_N), x_N], axis=1)
    fit = fit_thresholds(data, line)
    values = np.unique(staleness_N)
    free = fit_thresholds(data, (staleness_N[:, None] == values).astype(float))
    bend, rule = rule_of_two(data, staleness_N, level)
    rates = {}
    for value in values:
        # With S as origin the first coefficient is the threshold there.
        moved = np.stack([np.ones_like(x_N), x_N - np.log(value + s0)], axis=1)
        rates[float(value)] = Interval(*np.exp(profile_interval(data, moved, 0, level)).tolist())
    return Boundary(
        Interval(*profile_interval(data, line, 1, level)),
        rates,
        fit.scale,
        bend,
        p_value(fit, free, len(x_N)),
        p_value(rule, free, len(x_N)),
        level,
        warnings,
    )


def p_value(fit: ThresholdFit, free: ThresholdFit, thresholds: int) -> float:
    """Of the likelihood-ratio test of a fit with two constants against free thresholds; NaN where
    there is nothing to test with."""
    parameters = len(free.coefficients)
    tested = parameters - 2
    factor = small_sample_factor(thresholds, parameters, tested)
    if tested < 1 or factor == 0 or thresholds == parameters:
        return math.nan
    lost = 2 * factor * (free.log_likelihood - fit.log_likelihood)
    return float(stats.chi2.sf(max(0.0, lost), tested))


def rule_of_two(data: Censored, staleness_N: Floats, level: float) -> tuple[Interval, ThresholdFit]:
    """The rule of two constants: flat up to the binding staleness, and as 1 / S beyond it. Returns
    that staleness with its interval, and the fit."""
    positive = staleness_N[staleness_N > 0]
    lows, highs = np.log(positive.min()) - BEYOND, np.log(positive.max()) + BEYOND
    ones = np.ones((len(staleness_N), 1))
    with np.errstate(divide="ignore"):
        logs_N = np.log(staleness_N)
    bends = np.linspace(lows, highs, BENDS)
    fits = [fit_thresholds(data, ones, -np.maximum(logs_N - bend, 0)) for bend in bends]
    values = np.array([fit.log_likelihood for fit in fits])
    best = int(values.argmax())
    factor = small_sample_factor(len(logs_N), 2, 1)
    inside = bends[2 * factor * (values[best] - values) <= stats.chi2.ppf(level, 1)]
    low = 0.0 if inside[0] == bends[0] else float(np.exp(inside[0]))
    high = math.inf if inside[-1] == bends[-1] else float(np.exp(inside[-1]))
    return Interval(float(np.exp(bends[best])), low, high), fits[best]

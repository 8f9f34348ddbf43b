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

from rlhf_lab_analysis.statistics.arrays import Floats
from rlhf_lab_analysis.statistics.stability_grid import StabilityGrid, Trial, grid_of
from rlhf_lab_analysis.statistics.thresholds import (
    Censored,
    ThresholdFit,
    fit_thresholds,
    profile_interval,
    small_sample_factor,
)

LAW, FLAT = -1.0, 0.0
# Points of the profile over the logarithm of the binding staleness, and how far beyond the grid.
BENDS, BEYOND = 49, 0.7


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


def boundary(trials: Sequence[Trial], s0: float = 1.0, level: float = 0.95) -> Boundary:
    """Fit the boundary to collapsed and stable runs. s0 is added to S in the line, so that S = 0
    has a logarithm.

    Raises UserError where the grid does not hold the boundary (`grid_of`).
    """
    grid = grid_of(trials, s0)
    data, line, staleness_N = grid.data, grid.line_N2, grid.staleness_N
    fit = fit_thresholds(data, line)
    values = np.unique(staleness_N)
    free = fit_thresholds(data, (staleness_N[:, None] == values).astype(float))
    bend, rule = rule_of_two(data, staleness_N, level)
    rates = {}
    for value in values:
        # With S as origin the first coefficient is the threshold there.
        moved = line - np.outer(np.ones(len(line)), [0.0, np.log(value + s0)])
        rates[float(value)] = Interval(*np.exp(profile_interval(data, moved, 0, level)).tolist())
    return Boundary(
        slope_of(grid, level),
        rates,
        fit.scale,
        bend,
        p_value(fit, free, len(line)),
        p_value(rule, free, len(line)),
        level,
        grid.warnings,
    )


def slope_of(grid: StabilityGrid, level: float) -> Interval:
    """The slope of the line alone, with its interval."""
    return Interval(*profile_interval(grid.data, grid.line_N2, 1, level))


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
    fits: list[ThresholdFit] = []
    for bend in bends:
        before = fits[-1] if fits else None
        fits.append(fit_thresholds(data, ones, -np.maximum(logs_N - bend, 0), before))
    values = np.array([fit.log_likelihood for fit in fits])
    best = int(values.argmax())
    factor = small_sample_factor(len(logs_N), 2, 1)
    inside = bends[2 * factor * (values[best] - values) <= stats.chi2.ppf(level, 1)]
    low = 0.0 if inside[0] == bends[0] else float(np.exp(inside[0]))
    high = math.inf if inside[-1] == bends[-1] else float(np.exp(inside[-1]))
    return Interval(float(np.exp(bends[best])), low, high), fits[best]

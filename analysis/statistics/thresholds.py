"""Fit thresholds that are known to lie in an interval each: a regression with logistic noise.

A threshold y lies between low and high (one of which may be infinite), and y = X b + offset plus
logistic noise of some scale. The likelihood of an interval is F((high - m) / scale) less
F((low - m) / scale). In 1 / scale and b / scale its logarithm is concave, since the logistic
density is log-concave, so that it has one maximum.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import optimize, special, stats

from rlhf_lab_analysis.statistics.arrays import Floats

# Of the median width of intervals: the least scale. A smaller one cannot be told from none.
LEAST_SCALE = 0.1
MOST_SCALE = 1e3
# How far a profile is followed from the estimate, in units of the first step.
STEPS = 60


@dataclass(frozen=True, eq=False)
class Censored:
    """The ends of the interval of each threshold: (n,) each; those of unknown sides infinite."""

    low_N: Floats
    high_N: Floats

    @property
    def step(self) -> float:
        """The median width of those that have two ends; 1 if none has."""
        widths = self.high_N - self.low_N
        finite = widths[np.isfinite(widths)]
        return float(np.median(finite)) if len(finite) else 1.0


@dataclass(frozen=True, eq=False)
class ThresholdFit:
    """Coefficients (p,), and the logarithm of the likelihood."""

    coefficients: Floats
    log_likelihood: float


def small_sample_factor(thresholds: int, parameters: int) -> float:
    """By what twice a loss of log-likelihood by one coefficient is multiplied before it is compared
    with chi-square: the factor of a normal linear regression, an approximation for logistic noise
    in intervals whose level simulations hold (docs/statistics.md). 0 where there are too few
    thresholds for any test."""
    return max(0.0, (thresholds - parameters - 0.5) / thresholds)


def fit_thresholds(
    data: Censored, design_NP: Floats, offset_N: Floats | float = 0.0
) -> ThresholdFit:
    """The maximum of the likelihood. design_NP may have no columns."""
    columns, step = design_NP.shape[1], data.step
    low_N, high_N = data.low_N - offset_N, data.high_N - offset_N
    begin_N = np.where(np.isfinite(low_N), low_N, high_N - 2 * step)
    end_N = np.where(np.isfinite(high_N), high_N, low_N + 2 * step)
    begin = np.linalg.lstsq(design_NP, (begin_N + end_N) / 2, rcond=None)[0] if columns else ()
    found = optimize.minimize(
        loss_of, np.append(begin, 1.0) / step, (low_N, high_N, design_NP), jac=True,
        method="L-BFGS-B",
        bounds=[(None, None)] * columns + [(1 / MOST_SCALE, 1 / (LEAST_SCALE * step))],
        options={"ftol": 1e-12, "gtol": 1e-8, "maxiter": 500},
    )  # fmt: skip
    return ThresholdFit(found.x[:-1] / found.x[-1], -float(found.fun))


def loss_of(
    given: Floats, low_N: Floats, high_N: Floats, design_NP: Floats
) -> tuple[float, Floats]:
    """Less the log-likelihood, and its gradient, of coefficients / scale and 1 / scale."""
    inverse, centre_N = given[-1], design_NP @ given[:-1]
    a, b = low_N * inverse - centre_N, high_N * inverse - centre_N
    # F(b) - F(a) = F(b) F(-a) (1 - exp(a - b)).
    inside = -np.expm1(a - b)
    total = special.log_expit(b) + special.log_expit(-a) + np.log(inside)
    by_b = special.expit(-b) + np.exp(a - b) / inside
    by_a = -special.expit(a) - np.exp(a - b) / inside
    ends = (np.where(np.isfinite(end_N), end_N, 0.0) for end_N in (low_N, high_N))
    slope = sum(by @ end_N for by, end_N in zip((by_a, by_b), ends, strict=True))
    return -float(total.sum()), -np.append(-(by_a + by_b) @ design_NP, slope)


def profile_interval(
    data: Censored, design_NP: Floats, column: int, level: float
) -> tuple[float, float, float]:
    """A coefficient and its profile-likelihood interval (Venzon and Moolgavkar 1988): where twice
    the loss of log-likelihood, by the factor of small samples, is below the quantile of chi-square.
    An end that is not found is infinite."""
    whole = fit_thresholds(data, design_NP)
    point = float(whole.coefficients[column])
    rest_NP = np.delete(design_NP, column, axis=1)
    allowed = float(stats.chi2.ppf(level, 1))
    factor = small_sample_factor(*design_NP.shape)

    def excess(value: float) -> float:
        fixed = fit_thresholds(data, rest_NP, design_NP[:, column] * value)
        return 2 * factor * (whole.log_likelihood - fixed.log_likelihood) - allowed

    low, high = (end_of(excess, point, sign * data.step) for sign in (-1.0, 1.0))
    return point, low, high


def end_of(excess: Callable[[float], float], begin: float, step: float) -> float:
    """Where the excess turns positive from a point on, in steps that grow."""
    inside = begin
    for _ in range(STEPS):
        outside = inside + step
        if excess(outside) > 0:
            return float(optimize.brentq(excess, *sorted((inside, outside)), xtol=1e-4))
        inside, step = outside, step * 1.5
        if abs(inside - begin) > MOST_SCALE:
            break
    return float(np.copysign(np.inf, step))

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
    """Coefficients (p,), the scale of the noise, and the logarithm of the likelihood."""

    coefficients: Floats
    scale: float
    log_likelihood: float


def small_sample_factor(thresholds: int, parameters: int, tested: int) -> float:
    """By what twice a loss of log-likelihood is multiplied before it is compared with chi-square:
    the factor of a normal linear regression, an approximation for logistic noise in intervals whose
    level `python -m benchmarks.coverage boundary` simulates. parameters: coefficients of the larger
    model; tested: those that the smaller lacks. 0 where there are too few thresholds for any
    test."""
    return max(0.0, (thresholds - parameters - 1 + tested / 2) / thresholds)


def fit_thresholds(
    data: Censored,
    design_NP: Floats,
    offset_N: Floats | float = 0.0,
    near: ThresholdFit | None = None,
) -> ThresholdFit:
    """The maximum of the likelihood. design_NP may have no columns. near: a fit to begin at, for
    one of many that differ little; there is one maximum, wherever it begins."""
    columns = design_NP.shape[1]
    low_N, high_N = data.low_N - offset_N, data.high_N - offset_N
    least = LEAST_SCALE * data.step
    middle_N = np.where(
        np.isfinite(low_N) & np.isfinite(high_N),
        (np.where(np.isfinite(low_N), low_N, 0) + np.where(np.isfinite(high_N), high_N, 0)) / 2,
        np.where(np.isfinite(low_N), low_N + data.step, high_N - data.step),
    )
    begin = np.linalg.lstsq(design_NP, middle_N, rcond=None)[0] if columns else np.empty(0)
    start = np.append(begin, 1.0) / data.step
    if near is not None:
        start = np.append(near.coefficients, 1.0) / near.scale
    found = optimize.minimize(
        loss_of, start, (low_N, high_N, design_NP), jac=True,
        method="L-BFGS-B", bounds=[(None, None)] * columns + [(1 / MOST_SCALE, 1 / least)],
        options={"ftol": 1e-12, "gtol": 1e-8, "maxiter": 500},
    )  # fmt: skip
    scale = 1 / float(found.x[-1])
    return ThresholdFit(found.x[:-1] * scale, scale, -float(found.fun))


def loss_of(
    given: Floats, low_N: Floats, high_N: Floats, design_NP: Floats
) -> tuple[float, Floats]:
    """Less the log-likelihood, and its gradient, of coefficients / scale and 1 / scale."""
    inverse, centre_N = given[-1], design_NP @ given[:-1]
    has_low, has_high = np.isfinite(low_N), np.isfinite(high_N)
    safe_low, safe_high = np.where(has_low, low_N, 0.0), np.where(has_high, high_N, 0.0)
    a, b = safe_low * inverse - centre_N, safe_high * inverse - centre_N
    both = has_low & has_high
    apart = np.where(both, np.maximum(b - a, 1e-300), 1.0)
    # F(b) - F(a) = F(b) F(-a) (1 - exp(a - b)).
    total = np.where(has_high, special.log_expit(b), 0) + np.where(
        has_low, special.log_expit(-a), 0
    )
    total = total + np.where(both, np.log(-np.expm1(-apart)), 0)
    between = np.where(both, np.exp(-apart) / -np.expm1(-apart), 0)
    by_b = np.where(has_high, special.expit(-b), 0) + between
    by_a = np.where(has_low, -special.expit(a), 0) - between
    slopes = np.append(-(by_a + by_b) @ design_NP, by_a @ safe_low + by_b @ safe_high)
    return -float(total.sum()), -slopes


def profile_interval(
    data: Censored, design_NP: Floats, column: int, level: float
) -> tuple[float, float, float]:
    """A coefficient and its profile-likelihood interval (Venzon and Moolgavkar 1988): where twice
    the loss of log-likelihood, by the factor of small samples, is below the quantile of chi-square.
    An end that is not found is infinite."""
    whole = fit_thresholds(data, design_NP)
    point = float(whole.coefficients[column])
    rest_NP = np.delete(design_NP, column, axis=1)
    allowed, factor = (
        float(stats.chi2.ppf(level, 1)),
        small_sample_factor(len(design_NP), design_NP.shape[1], 1),
    )

    fixed = ThresholdFit(np.delete(whole.coefficients, column), whole.scale, 0.0)

    def excess(value: float) -> float:
        nonlocal fixed
        fixed = fit_thresholds(data, rest_NP, design_NP[:, column] * value, fixed)
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

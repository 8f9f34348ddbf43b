"""Means of few numbers, with confidence intervals by Student's t."""

from __future__ import annotations

import math
from collections.abc import Sequence


def mean_interval(values: Sequence[float], share: float = 0.95) -> tuple[float, float, float]:
    """The mean and the bounds of its confidence interval, infinite for a single number."""
    count = len(values)
    mean = math.fsum(values) / count
    if count < 2:
        return mean, -math.inf, math.inf
    variance = math.fsum((value - mean) ** 2 for value in values) / (count - 1)
    half = quantile(share, count - 1) * math.sqrt(variance / count)
    return mean, mean - half, mean + half


def quantile(share: float, degrees: int) -> float:
    """The t for which P(|T| < t) is the share, with this number of degrees of freedom."""
    low, high = 0.0, 1.0
    while share_within(high, degrees) < share:
        high *= 2
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if share_within(middle, degrees) < share else (low, middle)
    return (low + high) / 2


def share_within(t: float, degrees: int) -> float:
    """Probability of |T| < t (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""
    angle = math.atan(t / math.sqrt(degrees))
    sine, cosine = math.sin(angle), math.cos(angle)
    is_odd = degrees % 2 == 1
    term, total = (cosine, 0.0) if is_odd else (1.0, 0.0)
    for number in range(2 if is_odd else 1, degrees, 2):
        total += term
        term *= cosine * cosine * number / (number + 1)
    return 2 / math.pi * (angle + sine * total) if is_odd else sine * total

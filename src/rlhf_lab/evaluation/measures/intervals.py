"""Means of numbers from 0 to 1, with their intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rlhf_lab.types.data import Metrics


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def wilson(successes: float, trials: int, z: float = 1.959964) -> tuple[float, float]:
    """Wilson 95% interval of a share: prompts as trials, one training seed.

    Halves count as half a success. Numbers from 0 to 1 vary at most as much as zeros and ones of
    the same mean, so for them the interval is rather too wide than too narrow.
    """
    share = successes / trials
    centre = share + z * z / (2 * trials)
    spread = z * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    scale = 1 + z * z / trials
    return max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale)


def with_interval(name: str, values: Sequence[float]) -> Metrics:
    """The mean of numbers from 0 to 1, and its 95% bounds under NAME_low and NAME_high."""
    # Rounding must not carry a mean of ones above 1.
    share = min(1.0, mean(values))
    low, high = wilson(share * len(values), len(values))
    return {name: share, f"{name}_low": low, f"{name}_high": high}

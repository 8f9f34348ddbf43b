"""Numbers as the page has them: short in its data, rounded where they are read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from analysis.statistics.results import Estimate

# Of what is drawn; texts have fewer.
DIGITS = 6
NONE = "–"  # noqa: RUF001


def short(value: Any) -> float | int | None:
    """A number with the digits that a curve needs; None for NaN and infinity."""
    number = float(value)
    if not math.isfinite(number):
        return None
    rounded = float(f"{number:.{DIGITS}g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded


def thinned(length: int, most: int) -> list[int]:
    """At most so many of the places 0..length-1, evenly spread, with the first and the last."""
    if length <= most:
        return list(range(length))
    return sorted({round(step * (length - 1) / (most - 1)) for step in range(most)})


def text_of(value: float) -> str:
    """Three decimals for what is around 1, whole numbers as they are, else four digits."""
    if not math.isfinite(value):
        return NONE if math.isnan(value) else str(value)
    if value and float(value).is_integer() and abs(value) < 1e9:
        return str(int(value))
    if value == 0 or 1e-3 <= abs(value) < 1000:
        return f"{value:.3f}"
    return f"{value:.4g}"


def interval_text(estimate: Estimate) -> str:
    """Such as 0.512 [0.431, 0.604]."""
    ends = f"[{text_of(estimate.low)}, {text_of(estimate.high)}]"
    return f"{text_of(estimate.point)} {ends}"


def listed(numbers: Sequence[int]) -> str:
    """Whole numbers, runs of them as 1 to 5."""
    ordered = sorted(numbers)
    if len(ordered) > 2 and ordered == list(range(ordered[0], ordered[-1] + 1)):
        return f"{ordered[0]} to {ordered[-1]}"
    return ", ".join(map(str, ordered))

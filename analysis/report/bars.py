"""Compute the drawings of intervals: positions of zero, margin, estimate and ends."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rlhf_lab_analysis.rounding import estimate_text, number_text
from rlhf_lab_analysis.statistics.results import Estimate

WIDTH, HEIGHT, EDGE = 240, 22, 8


@dataclass(frozen=True)
class Scale:
    """From numbers to positions along a bar. origin: no effect, which is 0 of a difference and 1
    of a ratio. margin: the largest distance from it that does not matter, None without one."""

    low: float
    high: float
    origin: float | None
    margin: float | None

    def at(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return round(EDGE + min(1.0, max(0.0, share)) * (WIDTH - 2 * EDGE), 1)


@dataclass(frozen=True)
class Bar:
    """Positions in pixels. margin: its begin and width. text: the same in words."""

    low: float
    point: float
    high: float
    origin: float | None
    margin: tuple[float, str] | None
    text: str
    width: int = WIDTH
    height: int = HEIGHT
    middle: int = HEIGHT // 2


def scale_of(estimates: Sequence[Estimate], origin: float | None, margin: float | None) -> Scale:
    """A scale with room for these intervals, the origin and the margin."""
    ends = [end for one in estimates for end in (one.low, one.point, one.high)]
    values = [end for end in ends if math.isfinite(end)]
    if origin is not None:
        values += [origin, *((origin - margin, origin + margin) if margin else ())]
    low, high = min(values, default=0.0), max(values, default=1.0)
    room = 0.06 * (high - low) or 1.0
    return Scale(low - room, high + room, origin, margin)


def bar(estimate: Estimate, scale: Scale, label: str) -> Bar:
    """The interval on a scale, with the same in words for readers who do not see it."""
    low, point, high = map(scale.at, (estimate.low, estimate.point, estimate.high))
    text = f"{label}: {estimate_text(estimate)}"
    if scale.origin is None:
        return Bar(low, point, high, None, None, text)
    text += f"; the line is at {number_text(scale.origin)}"
    margin = None
    if scale.margin:
        begin, end = scale.at(scale.origin - scale.margin), scale.at(scale.origin + scale.margin)
        margin = (begin, f"{end - begin:.1f}")
        text += f", the shaded margin ±{number_text(scale.margin)}"
    return Bar(low, point, high, scale.at(scale.origin), margin, text)

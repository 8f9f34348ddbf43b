"""An interval as a small drawing: zero, the margin around it, the estimate and its two ends."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from analysis.report.markup import Markup, element
from analysis.report.numbers import interval_text, text_of
from analysis.statistics.results import Estimate

WIDTH, HEIGHT, EDGE = 240, 22, 8


@dataclass(frozen=True)
class Scale:
    """From numbers to places along a bar. origin: what nothing would be, 0 of a difference and 1
    of a ratio. margin: the largest distance from it that does not matter, None without one."""

    low: float
    high: float
    origin: float | None
    margin: float | None

    def at(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return round(EDGE + min(1.0, max(0.0, share)) * (WIDTH - 2 * EDGE), 1)


def scale_of(estimates: Sequence[Estimate], origin: float | None, margin: float | None) -> Scale:
    """A scale with room for these intervals, the origin and the margin."""
    ends = [end for one in estimates for end in (one.low, one.point, one.high)]
    values = [end for end in ends if math.isfinite(end)]
    if origin is not None:
        values += [origin, *((origin - margin, origin + margin) if margin else ())]
    low, high = min(values, default=0.0), max(values, default=1.0)
    room = 0.06 * (high - low) or 1.0
    return Scale(low - room, high + room, origin, margin)


def bar(estimate: Estimate, scale: Scale, label: str) -> Markup:
    """The interval as SVG, with the same in words for who does not see it."""
    parts = []
    middle = f"{HEIGHT / 2:g}"
    if scale.origin is not None and scale.margin:
        first, end = scale.at(scale.origin - scale.margin), scale.at(scale.origin + scale.margin)
        size = {"y": "2", "height": f"{HEIGHT - 4}"}
        parts.append(
            element("rect", class_="margin", x=f"{first}", width=f"{end - first:.1f}", **size)
        )
    if scale.origin is not None:
        x = f"{scale.at(scale.origin)}"
        parts.append(element("line", class_="origin", x1=x, x2=x, y1="0", y2=f"{HEIGHT}"))
    low, high = (scale.at(end) for end in (estimate.low, estimate.high))
    span = {"x1": f"{low}", "x2": f"{high}", "y1": middle, "y2": middle}
    parts.append(element("line", class_="span", **span))
    parts.append(
        element("circle", class_="point", cx=f"{scale.at(estimate.point)}", cy=middle, r="4")
    )
    words = f"{label}: {interval_text(estimate)}"
    if scale.origin is not None:
        words += f"; the line is at {text_of(scale.origin)}"
        words += f", the shaded margin ±{text_of(scale.margin)}" if scale.margin else ""
    return element(
        "svg",
        *parts,
        class_="bar",
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        aria_label=words,
    )

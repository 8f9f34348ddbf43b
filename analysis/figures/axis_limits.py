"""Set the limits of panels so that all points are shown, and of their intervals what fits."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from matplotlib.axes import Axes

from rlhf_lab_analysis.words import is_share

# Room for intervals on each side, of what the points take: at least, and at most. Points in rows of
# their own stay apart whatever room the intervals take.
BESIDE, MOST_BESIDE = 0.4, 1.2
MARGIN = 0.06
# Values that differ by less than this share of their size are shown as one: a narrower axis would
# need an offset beside it, and show rounding.
SAME = 1e-3
ROUNDING = 1e-9
Which = Literal["x", "y"]
# A point and the ends of its interval.
Span: TypeAlias = tuple[float, float, float]


@dataclass(eq=False)
class AxisLimits:
    """What was drawn in each panel, along each axis: points with the ends of their intervals."""

    spans: list[tuple[Axes, Which, str, Span]] = field(default_factory=list)
    rows: set[tuple[Axes, Which]] = field(default_factory=set)

    def include(
        self, axes: Axes, which: Which, name: str, span: Span, is_row: bool = False
    ) -> None:
        """Note a point and the ends of its interval, of a metric or axis of that name. is_row:
        whether no other point is drawn at the same height."""
        self.spans.append((axes, which, name, span))
        if is_row:
            self.rows.add((axes, which))

    def apply(self) -> bool:
        """Set the limits of all panels; whether some interval is cut."""
        is_cut = False
        done: set[tuple[Which, int]] = set()
        for axes, which, name, _ in self.spans:
            shared: Any = axes.get_shared_x_axes() if which == "x" else axes.get_shared_y_axes()
            together = shared.get_siblings(axes)
            if (which, id(axes)) in done:
                continue
            done |= {(which, id(each)) for each in together}
            spans = [span for a, w, _, span in self.spans if a in together and w == which]
            most = math.inf if (axes, which) in self.rows else MOST_BESIDE
            low, high, wide = limits(spans, is_share(name), most)
            is_cut |= wide
            margin = MARGIN * (high - low)
            setter = axes.set_xlim if which == "x" else axes.set_ylim
            setter(low - margin, high + margin)
        return is_cut


def limits(
    spans: list[Span], of_share: bool, most: float = MOST_BESIDE
) -> tuple[float, float, bool]:
    """The least and the largest value to show, and whether an interval goes beyond. most: room
    beside the points, of what these take."""
    points = [point for point, _, _ in spans]
    ends = [end for span in spans for end in span if math.isfinite(end)]
    width = max(points) - min(points)
    halves = sorted((high - low) / 2 for _, low, high in spans if math.isfinite(high - low))
    typical = halves[len(halves) // 2] if halves else 0.0
    size = max(map(abs, points), default=0.0)
    least = width if width > SAME * size else size or 1.0
    # As much as a typical interval takes, but never so much that points fall on each other.
    room = min(max(BESIDE * least, typical), most * least)
    low = max(min(ends), min(points) - room)
    high = min(max(ends), max(points) + room)
    if of_share:
        low, high = max(low, min(0.0, *points)), min(high, max(1.0, *points))
    if high - low <= SAME * size:
        low, high = low - room / 2, high + room / 2
    # Half an interval beside its middle may end short of it by rounding.
    slack = ROUNDING * (high - low)
    return low, high, min(ends) < low - slack or max(ends) > high + slack

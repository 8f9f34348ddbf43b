"""The six forms of figures, each drawn in one panel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from rlhf_lab_analysis.comparison.names import named_value
from rlhf_lab_analysis.plots.lines import Line
from rlhf_lab_analysis.plots.style import GREY, Look, Style
from rlhf_lab_analysis.statistics.pareto import Front, front
from rlhf_lab_analysis.statistics.results import Method, Options

Looks = Mapping[str, Look]
# Lines with more points than this have no markers; panels with more lines no faint seeds.
MARKED, FAINT = 20, 12
# Numbers over at least this factor are spaced by doublings.
WIDE = 8
ROWS_ASIDE = 0.6
# Of what the points take: room for intervals on each side, and beyond that.
ROOM, MARGIN = 0.5, 0.05
# Share of the width between lines of a ladder, so that their intervals do not lie on each other.
ASIDE = 0.012


def curves(axes: Axes, lines: Sequence[Line], look: Looks, style: Style) -> None:
    """Means over seeds, each seed as a faint line, and from three seeds on a band."""
    for one in lines:
        own = look[one.name]
        if style.seeds and len(lines) <= FAINT and len(one.seeds) > 1:
            for rows in one.seeds.values():
                axes.plot(rows["x"], rows["y"], color=own.colour, lw=0.5, alpha=0.3)
        if one.has_interval:
            axes.fill_between(one.x, one.low, one.high, color=own.colour, alpha=0.15, lw=0)
        marker = own.marker if len(one.x) <= MARKED else ""
        axes.plot(one.x, one.y, color=own.colour, ls=own.line, marker=marker, mec="white", mew=0.4)


def ends(axes: Axes, lines: Sequence[Line], look: Looks, style: Style) -> None:
    """A row for each condition, the first on top: mean, interval, and each seed as a faint tick."""
    for row, one in enumerate(lines):
        own = look[one.name]
        seeds = [float(rows["y"].iloc[-1]) for rows in one.seeds.values()]
        if style.seeds and len(seeds) > 1:
            axes.plot(seeds, [row] * len(seeds), "|", color=own.colour, alpha=0.5, ms=5)
        if one.has_interval:
            bar: Any = {"color": own.colour, "lw": 3.5, "alpha": 0.35}
            axes.plot([one.low[-1], one.high[-1]], [row, row], **bar)
        axes.plot(one.y[-1:], [row], color=own.colour, marker=own.marker, mec="white", mew=0.4)
    axes.set_yticks(range(len(lines)), [style.text(one.name) for one in lines])
    axes.set_ylim(len(lines) - 1 + ROWS_ASIDE, -ROWS_ASIDE)
    axes.grid(axis="x", color=GREY, alpha=0.2, lw=0.5)


def ladder(
    axes: Axes, lines: Sequence[Line], key: str, groups: Mapping[str, str], look: Looks
) -> None:
    """Ends over the number that conditions differ in, a line for each group. groups: the name of
    the rest of a condition, by the name of the condition."""
    at = {one.name: float(named_value(one.cell, key)) for one in lines}
    names = list(dict.fromkeys(groups[one.name] for one in lines))
    positions = scale_of(axes, sorted(set(at.values())))
    for index, name in enumerate(names):
        own = [one for one in lines if groups[one.name] == name]
        own.sort(key=lambda one: at[one.name])
        aside = (index - (len(names) - 1) / 2) * ASIDE * (len(positions) - 1 or 1)
        x = [positions[at[one.name]] + aside for one in own]
        colour, marker, line = look[name].colour, look[name].marker, look[name].line
        axes.vlines(x, [o.low[-1] for o in own], [o.high[-1] for o in own], color=colour, lw=0.9)
        y = [float(one.y[-1]) for one in own]
        axes.plot(x, y, color=colour, marker=marker, ls=line, mec="white", mew=0.4)


def scale_of(axes: Axes, values: Sequence[float]) -> dict[float, float]:
    """Where on the axis of a ladder each number stands: at equal distances where they are far
    apart, such as doublings, else in proportion."""
    is_wide = values[0] <= 0 or values[-1] / values[0] >= WIDE
    steps = dict(zip(values, range(len(values)), strict=True))
    width = values[-1] - values[0]
    share = {value: (len(values) - 1) * (value - values[0]) / width for value in values}
    at = {value: float(steps[value]) for value in values} if is_wide else share
    axes.set_xticks(list(at.values()), [f"{value:g}" for value in values])
    return at


def fronts(axes: Axes, costs: Sequence[Line], look: Looks, style: Style) -> Front | None:
    """Quality at the end against what it cost: interquartile means over seeds with intervals on
    both axes, and the Pareto front as steps. None of fewer than two seeds, which are drawn
    alone."""
    seeds = {one.name: {seed: last_of(rows) for seed, rows in one.seeds.items()} for one in costs}
    every = np.array([point for points in seeds.values() for point in points.values()])
    if style.seeds and len(every) > len(costs):
        for name, points in seeds.items():
            x, y = np.array([*points.values()]).T
            axes.plot(x, y, ".", color=look[name].colour, alpha=0.3, ms=3)
    if len(costs) < 2 or min(map(len, seeds.values())) < 2:
        for one in costs:
            mark(axes, look[one.name], float(one.x[-1]), float(one.y[-1]))
        return None
    found = front(seeds, Options(method=Method.percentile))
    for point in found.points:
        own, x, y = look[point.condition], point.cost, point.quality
        if len(seeds[point.condition]) > 2:
            axes.plot([x.low, x.high], [y.point] * 2, color=own.colour, lw=0.8)
            axes.plot([x.point] * 2, [y.low, y.high], color=own.colour, lw=0.8)
        mark(axes, own, x.point, y.point)
    best = [(one.cost.point, one.quality.point) for one in found.points if one.is_on_front]
    axes.step(*np.array(best).T, where="post", color=GREY, lw=0.8, zorder=0)
    return found


def last_of(rows: pd.DataFrame) -> tuple[float, float]:
    return float(rows["x"].iloc[-1]), float(rows["y"].iloc[-1])


def mark(axes: Axes, look: Look, x: float, y: float) -> None:
    axes.plot([x], [y], color=look.colour, marker=look.marker, ms=5, mec="white", mew=0.5)


def heat(axes: Axes, lines: Sequence[Line], keys: tuple[str, str], label: str) -> None:
    """Means at the end over two keys, the first along x; conditions that are missing are empty."""
    values = [
        sorted({str_of(named_value(one.cell, key)) for one in lines}, key=number_first)
        for key in keys
    ]
    means = np.full((len(values[1]), len(values[0])), np.nan)
    for one in lines:
        x, y = (values[i].index(str_of(named_value(one.cell, key))) for i, key in enumerate(keys))
        means[y, x] = one.y[-1]
    image = axes.imshow(means, origin="lower", aspect="auto", cmap="viridis")
    middle = (np.nanmin(means) + np.nanmax(means)) / 2
    for (row, place), mean in np.ndenumerate(means):
        if np.isfinite(mean):
            colour = "white" if mean <= middle else "black"
            axes.text(place, row, f"{mean:.3g}", ha="center", va="center", color=colour)
    axes.set_xticks(range(len(values[0])), values[0])
    axes.set_yticks(range(len(values[1])), values[1])
    axes.figure.colorbar(image, ax=axes, label=label)


def str_of(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def number_first(text: str) -> tuple[bool, float, str]:
    """A key that sorts numbers by size, before texts."""
    try:
        return (False, float(text), "")
    except ValueError:
        return (True, 0.0, text)


def few_ticks(axes: Axes, is_count: bool = False) -> None:
    """Few round ticks along a linear x, which do not touch; whole numbers of what is counted."""
    if axes.get_xscale() == "linear":
        axes.xaxis.set_major_locator(MaxNLocator(4, integer=is_count))


def limit(axes: Axes, lines: Sequence[Line], along: str) -> bool:
    """Make room for all points, and for as much of intervals as ROOM allows; whether some is cut.
    along: x or y, the axis of the values."""
    points = [v for one in lines for rows in one.seeds.values() for v in rows["y"]]
    ends = [v for one in lines for v in (*one.low, *one.high) if np.isfinite(v)]
    width = max(points) - min(points) or abs(points[0]) or 1.0
    low = max(min([*points, *ends]), min(points) - ROOM * width)
    high = min(max([*points, *ends]), max(points) + ROOM * width)
    setter = axes.set_xlim if along == "x" else axes.set_ylim
    setter(low - MARGIN * (high - low or width), high + MARGIN * (high - low or width))
    return bool(ends) and (min(ends) < low or max(ends) > high)

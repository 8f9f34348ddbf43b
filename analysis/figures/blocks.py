"""What figures are made of: curves with bands, points with crosses, bars of intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from analysis.comparison.families import value
from analysis.comparison.selection import Cell, told_as
from analysis.figures.courses import Course, course
from analysis.figures.families import order
from analysis.figures.looks import Look, joined, look
from analysis.figures.names import KL, SPOKEN, label
from analysis.figures.sheet import Sheet
from analysis.figures.style import GREY, plain
from analysis.statistics.results import Estimate


def look_of(cell: Cell, told: Sequence[str]) -> Look:
    """Colour and line by the first key that is told, the marker by the second, if there is one."""
    looks = [look(key, value(cell, key)) for key in told[:2]]
    return looks[0] if len(looks) == 1 else joined(*looks)


def name_of(cell: Cell, told: Sequence[str]) -> str:
    """A condition as its legend says it: the words of all that is told."""
    return " ".join(word_of(cell, key) for key in told)


def word_of(cell: Cell, key: str) -> str:
    """A part in a word: `N=4`, `sync`, `no correction`."""
    found = value(cell, key)
    if key in SPOKEN:
        before, without = SPOKEN[key]
        return f"{before}{found}" if found else without
    return told_as(key, found) or f"no {key}"


def to_legend(sheet: Sheet, cell: Cell, told: Sequence[str]) -> None:
    """Colour and line for what the first key says, markers for what the second says."""
    first = look(told[0], value(cell, told[0]))
    alone = len(told) == 1
    style: Any = first.line
    sample = Line2D(
        [], [], color=first.colour, linestyle=style, marker=first.marker if alone else ""
    )
    rank = (0, order(value(cell, told[0])))
    sheet.name(word_of(cell, told[0]), sample, len(cell.seeds), rank)
    if not alone:
        marker = look(told[1], value(cell, told[1])).marker
        second = Line2D([], [], color=GREY, linestyle="none", marker=marker)
        rank = (1, order(value(cell, told[1])))
        sheet.name(word_of(cell, told[1]), second, len(cell.seeds), rank)


def outer(panel: Axes, x: str) -> None:
    """Name the x-axis where no panel below does."""
    place = panel.get_subplotspec()
    if place is None or place.is_last_row():
        panel.set_xlabel(label(x))


def band_curve(
    sheet: Sheet, axes: Axes, cell: Cell, told: Sequence[str], xy: tuple[str, str]
) -> Course:
    """Means over seeds at each version, with a band where there is more than one seed."""
    made, style = course(cell, *xy), look_of(cell, told)
    x, (y, low, high) = made.x[0], made.y
    axes.plot(x, y, color=style.colour, marker=style.marker, linestyle=style.line)
    if len(made.seeds) > 1:
        axes.fill_between(x, low, high, color=style.colour, alpha=0.15, linewidth=0)
    keep(sheet, axes, cell, told, xy, made)
    return made


def path(sheet: Sheet, axes: Axes, cell: Cell, told: Sequence[str], xy: tuple[str, str]) -> Course:
    """The way over two metrics, version by version, with a cross of intervals at the last."""
    made, style = course(cell, *xy), look_of(cell, told)
    axes.plot(
        made.x[0], made.y[0], color=style.colour, marker=style.marker, linestyle=style.line, lw=0.8
    )
    if len(made.seeds) > 1:
        cross(axes, made, style)
    keep(sheet, axes, cell, told, xy, made)
    return made


def end_point(
    sheet: Sheet, axes: Axes, cell: Cell, told: Sequence[str], xy: tuple[str, str]
) -> Course:
    """The last version alone, with a cross of intervals."""
    made, style = course(cell, *xy), look_of(cell, told)
    axes.plot(made.x[0][-1], made.y[0][-1], color=style.colour, marker=style.marker, ls="none")
    if len(made.seeds) > 1:
        cross(axes, made, style)
    keep(sheet, axes, cell, told, xy, made, (-1,))
    return made


def cross(axes: Axes, made: Course, style: Look) -> None:
    x, y = made.x, made.y
    error: dict[str, Any] = {"color": style.colour, "lw": 0.7, "alpha": 0.7}
    axes.plot([x[1][-1], x[2][-1]], [y[0][-1]] * 2, **error)
    axes.plot([x[0][-1]] * 2, [y[1][-1], y[2][-1]], **error)


def keep(
    sheet: Sheet,
    axes: Axes,
    cell: Cell,
    told: Sequence[str],
    xy: tuple[str, str],
    made: Course,
    places: Sequence[int] | None = None,
) -> None:
    """Put a course into the figure's data and legend."""
    name = name_of(cell, told)
    to_legend(sheet, cell, told)
    sheet.runs(cell, made.warnings)
    for place in range(len(made.versions)) if places is None else places:
        x, x_low, x_high = (float(each[place]) for each in made.x)
        y, low, high = (float(each[place]) for each in made.y)
        # Intervals along x are drawn where x was measured, and at the last version.
        is_crossed = xy[0] == KL and place in (-1, len(made.versions) - 1)
        sheet.framing.see(axes, "x", xy[0], (x, x_low, x_high) if is_crossed else (x, x, x))
        sheet.framing.see(axes, "y", xy[1], (y, low, high))
        put(
            sheet, cell, made, place,
            condition=name, x_name=xy[0], x=x, x_low=x_low, x_high=x_high, y_name=xy[1],
        )  # fmt: skip


def put(sheet: Sheet, cell: Cell, made: Course, place: int, **shown: Any) -> None:
    """Keep one version of a course as data. shown: the condition, x, and the names of x and y."""
    y, low, high = (float(each[place]) for each in made.y)
    sheet.add(
        cell, **shown, y=y, low=low, high=high, version=made.versions[place],
        n=len(made.seeds), seeds=seeds_text(made.seeds), interval=made.interval,
    )  # fmt: skip


def seeds_text(seeds: Sequence[int]) -> str:
    return " ".join(map(str, seeds))


def bars(
    axes: Axes, names: Sequence[str], estimates: Sequence[Estimate], looks: Sequence[Look]
) -> None:
    """A row for each name: interval as a bar, estimate as a tick in it; the first one on top."""
    for place, (found, look_) in enumerate(zip(estimates, looks, strict=True)):
        interval_bar(axes, (found.low, found.high), place, look_.colour)
        axes.plot([found.point], [place], color=look_.colour, marker="|", ms=7, mew=1.4)
    row_names(axes, names)


def interval_bar(axes: Axes, ends: tuple[float, float], place: float, colour: str) -> None:
    """An interval as a bar that ends where the interval does: a line's own caps lie beyond it."""
    low, high = ends
    axes.plot([low, high], [place] * 2, color=colour, lw=4, alpha=0.35, solid_capstyle="butt")


def row_names(axes: Axes, names: Sequence[str]) -> None:
    """Names of rows down the left side."""
    axes.set_yticks(range(len(names)), [plain(name) for name in names])
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.grid(axis="x", color=GREY, alpha=0.2, lw=0.5)

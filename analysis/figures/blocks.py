"""What figures are made of: curves with bands, points with crosses, bars of intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from analysis.figures.courses import Course, course
from analysis.figures.families import value
from analysis.figures.looks import Look, joined, look
from analysis.figures.names import label
from analysis.figures.sheet import Sheet
from analysis.figures.style import GREY, plain
from analysis.selection import Cell
from analysis.statistics.results import Estimate


def look_of(cell: Cell, told: Sequence[str]) -> Look:
    """Colour by the first key that is told, marker and line by the second, if there is one."""
    looks = [look(key, value(cell, key)) for key in told[:2]]
    return looks[0] if len(looks) == 1 else joined(*looks)


def name_of(cell: Cell, told: Sequence[str]) -> str:
    """A condition as its legend says it; `correction=none` is told where all else is the same."""
    return plain(cell.title(told)) or " ".join(f"{key}={value(cell, key)}" for key in told)


def handle(look: Look, line: bool = True) -> Line2D:
    style: Any = look.line if line else "none"
    return Line2D([], [], color=look.colour, marker=look.marker, linestyle=style)


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
    keep(sheet, cell, told, xy, made)
    return made


def path(sheet: Sheet, axes: Axes, cell: Cell, told: Sequence[str], xy: tuple[str, str]) -> Course:
    """The way over two metrics, version by version, with a cross of intervals at the last."""
    made, style = course(cell, *xy), look_of(cell, told)
    axes.plot(
        made.x[0], made.y[0], color=style.colour, marker=style.marker, linestyle=style.line, lw=0.8
    )
    if len(made.seeds) > 1:
        cross(axes, made, style)
    keep(sheet, cell, told, xy, made)
    return made


def end_point(
    sheet: Sheet, axes: Axes, cell: Cell, told: Sequence[str], xy: tuple[str, str]
) -> Course:
    """The last version alone, with a cross of intervals."""
    made, style = course(cell, *xy), look_of(cell, told)
    axes.plot(made.x[0][-1], made.y[0][-1], color=style.colour, marker=style.marker, ls="none")
    if len(made.seeds) > 1:
        cross(axes, made, style)
    keep(sheet, cell, told, xy, made, (-1,))
    return made


def cross(axes: Axes, made: Course, style: Look) -> None:
    x, y = made.x, made.y
    error: dict[str, Any] = {"color": style.colour, "lw": 0.7, "alpha": 0.7}
    axes.plot([x[1][-1], x[2][-1]], [y[0][-1]] * 2, **error)
    axes.plot([x[0][-1]] * 2, [y[1][-1], y[2][-1]], **error)


def keep(
    sheet: Sheet,
    cell: Cell,
    told: Sequence[str],
    xy: tuple[str, str],
    made: Course,
    places: Sequence[int] | None = None,
) -> None:
    """Put a course into the figure's data and legend."""
    name = name_of(cell, told)
    sheet.name(name, handle(look_of(cell, told)), len(made.seeds))
    sheet.runs(cell, made.warnings)
    for place in range(len(made.versions)) if places is None else places:
        x, x_low, x_high = (float(each[place]) for each in made.x)
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
        axes.plot([found.low, found.high], [place] * 2, color=look_.colour, lw=4, alpha=0.35)
        axes.plot([found.point], [place], color=look_.colour, marker="|", ms=7, mew=1.4)
    row_names(axes, names)


def row_names(axes: Axes, names: Sequence[str]) -> None:
    """Names of rows down the left side."""
    axes.set_yticks(range(len(names)), [plain(name) for name in names])
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.grid(axis="x", color=GREY, alpha=0.2, lw=0.5)

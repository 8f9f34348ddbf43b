"""The last version of conditions over a number such as N or S, and as rows of intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes

from analysis.figures.blocks import handle, look_of, name_of, outer, put, row_names
from analysis.figures.courses import course
from analysis.figures.families import value
from analysis.figures.names import label
from analysis.figures.sheet import Sheet
from analysis.figures.style import ticks
from analysis.selection import Cell, told_as

# Doublings have equal distances; 0 stands one below 1.
WITH_ZERO = ("max_staleness",)


@dataclass(frozen=True)
class Steps:
    """What stands on the x-axis (a number of the condition), what is measured, what is told."""

    over: str
    metric: str
    told: Sequence[str]


def ladder(sheet: Sheet, axes: Axes, cells: Sequence[Cell], steps: Steps) -> None:
    """The metric at the last version over a number of the conditions, a line for each told value.

    x is spaced by doublings.
    """
    axes.set_ylabel(label(steps.metric))
    outer(axes, steps.over)
    lines: dict[str, list[Cell]] = {}
    for cell in cells:
        lines.setdefault(name_of(cell, steps.told), []).append(cell)
    many = len(lines)
    for place, (name, held) in enumerate(lines.items()):
        line(sheet, axes, held, steps, (name, (place - (many - 1) / 2) * 0.02))
    linear = {"linthresh": 1, "base": 2} if steps.over in WITH_ZERO else {"base": 2}
    axes.set_xscale("symlog" if steps.over in WITH_ZERO else "log", **linear)
    ticks(axes, sorted({float(value(cell, steps.over)) for cell in cells}))


def line(
    sheet: Sheet, axes: Axes, cells: Sequence[Cell], steps: Steps, shown: tuple[str, float]
) -> None:
    """One line of a ladder. shown: its name, and by which share of x it steps aside."""
    name, aside = shown
    made = [course(cell, "version", steps.metric) for cell in cells]
    style = look_of(cells[0], steps.told)
    x = np.array([float(value(cell, steps.over)) for cell in cells])
    order = np.argsort(x, kind="stable")
    y = np.array([[each[-1] for each in found.y] for found in made])
    moved = x * (1 + aside)
    axes.plot(
        moved[order], y[order, 0], color=style.colour, marker=style.marker, linestyle=style.line
    )
    axes.vlines(moved, y[:, 1], y[:, 2], color=style.colour, lw=0.8)
    for place in order:
        cell = cells[place]
        sheet.runs(cell, made[place].warnings)
        sheet.name(name, handle(style), len(cell.seeds))
        put(
            sheet, cell, made[place], -1,
            condition=f"{name} {told_as(steps.over, value(cell, steps.over))}",
            x_name=steps.over, x=float(value(cell, steps.over)), y_name=steps.metric,
        )  # fmt: skip


def level_rows(
    sheet: Sheet, axes: Axes, cells: Sequence[Cell], metric: str, told: Sequence[str]
) -> None:
    """The metric at the last version, a row for each condition; the first one on top."""
    names = []
    for place, cell in enumerate(cells):
        made, style = course(cell, "version", metric), look_of(cell, told)
        y, low, high = (float(each[-1]) for each in made.y)
        axes.plot([low, high], [place] * 2, color=style.colour, lw=4, alpha=0.35)
        axes.plot([y], [place], color=style.colour, marker=style.marker, mec="white", mew=0.4)
        names.append(name_of(cell, told))
        sheet.runs(cell, made.warnings)
        put(sheet, cell, made, -1, condition=names[-1], y_name=metric)
    row_names(axes, [f"{n} (n={len(c.seeds)})" for n, c in zip(names, cells, strict=True)])
    axes.set_xlabel(label(metric))

"""The last version of conditions over a number such as N or S, and as rows of intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes

from analysis.comparison.families import value
from analysis.comparison.selection import Cell
from analysis.figures.blocks import (
    interval_bar,
    look_of,
    name_of,
    outer,
    put,
    row_names,
    to_legend,
    word_of,
)
from analysis.figures.courses import course
from analysis.figures.names import label, short
from analysis.figures.sheet import Sheet
from analysis.figures.style import ticks

# Doublings have equal distances; 0 stands one below 1.
WITH_ZERO = ("max_staleness",)
ASIDE = 0.04


@dataclass(frozen=True)
class Steps:
    """What stands on the x-axis (a number of the condition), what is measured, what is told."""

    over: str
    metric: str
    told: Sequence[str]


def ladder(sheet: Sheet, axes: Axes, cells: Sequence[Cell], steps: Steps) -> None:
    """The metric at the last version over a number of the conditions, a line for each value of the
    first key told. x is spaced by doublings."""
    axes.set_ylabel(short(steps.metric))
    outer(axes, steps.over)
    lines: dict[str, list[Cell]] = {}
    for cell in cells:
        lines.setdefault(word_of(cell, steps.told[0]), []).append(cell)
    for place, held in enumerate(lines.values()):
        line(sheet, axes, held, steps, (place - (len(lines) - 1) / 2) * ASIDE)
    linear = {"linthresh": 1, "base": 2} if steps.over in WITH_ZERO else {"base": 2}
    axes.set_xscale("symlog" if steps.over in WITH_ZERO else "log", **linear)
    ticks(axes, sorted({float(value(cell, steps.over)) for cell in cells}))


def line(sheet: Sheet, axes: Axes, cells: Sequence[Cell], steps: Steps, aside: float) -> None:
    """One line of a ladder; `aside`: by which share of x it steps aside for others."""
    made = [course(cell, "version", steps.metric) for cell in cells]
    looks = [look_of(cell, steps.told) for cell in cells]
    at = np.array([float(value(cell, steps.over)) for cell in cells])
    y = np.array([[each[-1] for each in found.y] for found in made])
    # 0 cannot step aside by a share of itself.
    x = np.where(at > 0, at * (1 + aside), aside)
    order = np.argsort(at, kind="stable")
    axes.plot(x[order], y[order, 0], color=looks[0].colour, linestyle=looks[0].line)
    axes.vlines(x, y[:, 1], y[:, 2], color=looks[0].colour, lw=0.8)
    for place in order:
        cell, look_ = cells[place], looks[place]
        axes.plot(x[place], y[place, 0], color=look_.colour, marker=look_.marker, ls="none")
        sheet.runs(cell, made[place].warnings)
        to_legend(sheet, cell, steps.told)
        sheet.framing.see(axes, "y", steps.metric, (y[place, 0], y[place, 1], y[place, 2]))
        keys = dict.fromkeys([*steps.told, steps.over])
        put(
            sheet, cell, made[place], -1, condition=name_of(cell, list(keys)),
            x_name=steps.over, x=at[place], y_name=steps.metric,
        )  # fmt: skip


def level_rows(
    sheet: Sheet, axes: Axes, cells: Sequence[Cell], metric: str, told: Sequence[str]
) -> None:
    """The metric at the last version, a row for each condition; the first one on top."""
    names = []
    for place, cell in enumerate(cells):
        made, style = course(cell, "version", metric), look_of(cell, told)
        y, low, high = (float(each[-1]) for each in made.y)
        interval_bar(axes, (low, high), place, style.colour)
        axes.plot([y], [place], color=style.colour, marker=style.marker, mec="white", mew=0.4)
        names.append(name_of(cell, told))
        sheet.runs(cell, made.warnings)
        sheet.framing.see(axes, "x", metric, (y, low, high))
        put(sheet, cell, made, -1, condition=names[-1], y_name=metric)
    row_names(axes, [f"{n} (n={len(c.seeds)})" for n, c in zip(names, cells, strict=True)])
    axes.set_xlabel(label(metric))

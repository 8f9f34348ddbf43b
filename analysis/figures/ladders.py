"""Draw the last version of conditions over a number such as N or S, and as rows of intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes

from rlhf_lab_analysis.comparison.cell import Cell
from rlhf_lab_analysis.comparison.families import value_of
from rlhf_lab_analysis.figures.families import group_by
from rlhf_lab_analysis.figures.figure_builder import FigureBuilder
from rlhf_lab_analysis.figures.mean_curves import end_curve
from rlhf_lab_analysis.figures.primitives import (
    add_to_legend,
    name_of,
    outer,
    record_version,
    style_of,
)
from rlhf_lab_analysis.figures.style import ticks
from rlhf_lab_analysis.words import short_label

# Doublings have equal distances; 0 stands one below 1.
WITH_ZERO = ("max_staleness",)
ASIDE = 0.04


@dataclass(frozen=True)
class LadderSpec:
    """over: the number of a condition on the x-axis. metric: of its last version. keys: in which
    lines differ by the first, and markers by the second."""

    over: str
    metric: str
    keys: Sequence[str]


def ladder(builder: FigureBuilder, axes: Axes, cells: Sequence[Cell], spec: LadderSpec) -> None:
    """The metric at the last version over a number of the conditions, a line for each value of the
    first key. x is spaced by doublings."""
    axes.set_ylabel(short_label(spec.metric))
    outer(axes, spec.over)
    lines = group_by(cells, lambda cell: name_of(cell, spec.keys[:1]))
    for index, group in enumerate(lines):
        line(builder, axes, group, spec, (index - (len(lines) - 1) / 2) * ASIDE)
    set_scale(axes, cells, spec.over)


def set_scale(axes: Axes, cells: Sequence[Cell], over: str) -> None:
    """x by doublings, with a tick at each number of these conditions."""
    linear = {"linthresh": 1, "base": 2} if over in WITH_ZERO else {"base": 2}
    axes.set_xscale("symlog" if over in WITH_ZERO else "log", **linear)
    ticks(axes, sorted({float(value_of(cell, over)) for cell in cells}))


def line(
    builder: FigureBuilder, axes: Axes, cells: Sequence[Cell], spec: LadderSpec, aside: float
) -> None:
    """One line of a ladder. aside: by which share of x it is moved beside other lines."""
    curves = [end_curve(cell, "version", spec.metric) for cell in cells]
    styles = [style_of(cell, spec.keys) for cell in cells]
    at = np.array([float(value_of(cell, spec.over)) for cell in cells])
    y = np.array([curve.point(-1) for curve in curves])
    # 0 cannot move by a share of itself.
    x = np.where(at > 0, at * (1 + aside), aside)
    order = np.argsort(at, kind="stable")
    axes.plot(x[order], y[order, 0], color=styles[0].colour, linestyle=styles[0].line)
    axes.vlines(x, y[:, 1], y[:, 2], color=styles[0].colour, lw=0.8)
    keys = list(dict.fromkeys([*spec.keys, spec.over]))
    for index in order:
        cell, style, curve = cells[index], styles[index], curves[index]
        axes.plot(x[index], y[index, 0], color=style.colour, marker=style.marker, ls="none")
        builder.count_runs(cell, curve.warnings)
        add_to_legend(builder, cell, spec.keys)
        record_version(
            builder, axes, "y", cell, curve, -1, condition=name_of(cell, keys),
            x_name=spec.over, x=at[index], y_name=spec.metric,
        )  # fmt: skip

"""Draw the time to a target: the share of runs that have reached a win-rate."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from rlhf_lab_analysis.comparison.cell import Cell
from rlhf_lab_analysis.comparison.families import Family
from rlhf_lab_analysis.figures.declaration import figure
from rlhf_lab_analysis.figures.figure_builder import FigureBuilder
from rlhf_lab_analysis.figures.grouping import baseline, by_algo, keys_of, names_of
from rlhf_lab_analysis.figures.mean_curves import options_for
from rlhf_lab_analysis.figures.panels import begin, in_rows
from rlhf_lab_analysis.figures.primitives import add_to_legend, outer, seeds_column, style_of
from rlhf_lab_analysis.figures.requirement import any_two
from rlhf_lab_analysis.statistics.crossings import Target, Times, times_to
from rlhf_lab_analysis.statistics.survival import survival
from rlhf_lab_analysis.statistics.targets import time_to_target
from rlhf_lab_analysis.words import UPDATES, WALL, WIN_RATE, in_words, label

# How far from SFT to the end of the freshest condition a target lies.
TARGET_SHARE = 0.9
REACHED = "share of runs at the target"


def that_learn(cells: Sequence[Cell]) -> list[Family]:
    """Families of one algorithm whose freshest condition ends above SFT: others have no target."""
    ends = ((family, ends_of(baseline(family))) for family in by_algo(cells))
    return [family for family, (start, end) in ends if end > start]


@figure(
    "targets",
    "share of runs that have reached a win-rate, over wall-clock and updates",
    "Share of runs that have reached a gold win-rate, as far as all runs are known",
    any_two(WIN_RATE, WALL, UPDATES, grouping=that_learn),
    page_of=lambda family: family.first.sweep,
)
def targets(families: Sequence[Family]) -> FigureBuilder:
    builder, axes = begin(len(families), 2)
    builder.lists_last = False
    for family, row in in_rows(builder, families, axes, ("algo", "model")):
        value = target_of(baseline(family))
        row[0].set_title(f"{in_words(builder.group)}, target {value:.3f}")
        for panel, x in zip(row, (WALL, UPDATES), strict=True):
            for cell, name in zip(family.cells, names_of(family), strict=True):
                times = times_to(Target(WIN_RATE, value, x), cell.curves(x, WIN_RATE))
                draw_arrivals(builder, panel, cell, keys_of(family), name, times)
            panel.set_ylabel(REACHED if len(families) == 1 else "share at target")
            outer(panel, x)
    builder.notes.append(
        f"Target: {TARGET_SHARE:.0%} of the way from SFT to the mean end of the freshest "
        "condition; where that ends no higher than SFT, nothing is drawn. A curve ends where the "
        "first run of it ends without the target."
    )
    return builder


def target_of(first: Cell) -> float:
    """A win-rate between the start and the end of a condition."""
    start, end = ends_of(first)
    return start + TARGET_SHARE * (end - start)


def ends_of(cell: Cell) -> tuple[float, float]:
    """The mean win-rates of SFT and of the last version, on the same prompts."""
    start, end = (np.mean([*each(WIN_RATE).values()]) for each in (cell.starts, cell.ways_end))
    return float(start), float(end)


def draw_arrivals(
    builder: FigureBuilder, axes: Axes, cell: Cell, keys: Sequence[str], name: str, times: Times
) -> None:
    """The share of runs at the target, up to where the first run ends without it: what comes after
    is not known of that run, and that it ended is no chance."""
    curve = survival(times.time_S, times.reached_S, np.ones((1, len(times.seeds))))
    x, y = np.append(0.0, curve.time_S), np.append(0.0, 1 - curve.left_RS[0])
    is_known = x <= times.horizon
    x, y = x[is_known], y[is_known]
    style, axis = style_of(cell, keys), times.target.axis
    axes.step(x, y, where="post", color=style.colour, linestyle=style.line)
    axes.plot(x[-1], y[-1], color=style.colour, marker=style.marker)
    result = time_to_target(times, options_for(axis))
    builder.count_runs(cell, result.warnings)
    add_to_legend(builder, cell, keys)
    builder.notes.append(
        f"{builder.group}, {name}, {label(axis)} up to {result.horizon:.4g}: {result.reached} of "
        f"{result.runs} at the target, mean {result.restricted_mean.text()}."
    )
    for at, share in zip(x, y, strict=True):
        builder.limits.include(axes, "y", REACHED, (share, share, share))
        builder.add(
            cell, condition=name, part=f"target {times.target.value:.4f}", x_name=axis, x=at,
            y_name=REACHED, y=share, n=len(times.seeds), seeds=seeds_column(times.seeds),
        )  # fmt: skip

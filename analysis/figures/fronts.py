"""Draw quality against cost: Pareto fronts, and the time to a target."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from rlhf_lab_analysis.comparison.families import Family
from rlhf_lab_analysis.comparison.selection import Cell
from rlhf_lab_analysis.figures.declaration import figure
from rlhf_lab_analysis.figures.figure_builder import FigureBuilder
from rlhf_lab_analysis.figures.grouping import baseline, by_algo, by_env, keys_of, names_of
from rlhf_lab_analysis.figures.mean_curves import options_for
from rlhf_lab_analysis.figures.panels import begin, in_rows
from rlhf_lab_analysis.figures.primitives import add_to_legend, outer, seeds_column, style_of
from rlhf_lab_analysis.figures.requirement import any_two
from rlhf_lab_analysis.figures.series_style import GREY
from rlhf_lab_analysis.figures.style import ROW, page, plain
from rlhf_lab_analysis.statistics.crossings import Target, Times, times_to
from rlhf_lab_analysis.statistics.pareto import front
from rlhf_lab_analysis.statistics.survival import survival
from rlhf_lab_analysis.statistics.targets import time_to_target
from rlhf_lab_analysis.words import DEVICE_HOURS, FLOPS, UPDATES, WALL, WIN_RATE, label

COSTS = (WALL, DEVICE_HOURS, FLOPS)
# How far from SFT to the end of the freshest condition a target lies.
TARGET_SHARE = 0.9
# Inches of a line of words in a panel, the most that words may take of it, and the width of a
# legend beside panels as a share of theirs.
WORDS_LINE, MOST_WORDS, LEGEND = 0.12, 0.6, 0.55
REACHED = "share of runs at the target"


@figure(
    "pareto",
    "win-rate against wall-clock, device-hours and FLOPs: who is on the front, how surely",
    "Means of cost and gold win-rate, and which conditions no other one dominates",
    any_two(WIN_RATE, *COSTS, grouping=by_env),
)
def pareto(families: Sequence[Family]) -> FigureBuilder:
    # Families may differ in other parts: the last column has the legend of each.
    widths = (*[1.0] * len(COSTS), LEGEND)
    figure_, axes = page(
        len(families), len(widths), height=ROW, sharex="col", sharey="all", width_ratios=widths
    )
    builder = FigureBuilder(figure_)
    members: list[tuple[Axes, list[str]]] = []
    for family, row in in_rows(builder, families, axes.tolist(), ("task", "model")):
        for panel, cost in zip(row, COSTS, strict=False):
            members.append((panel, draw_front(builder, panel, family, cost)))
            outer(panel, cost)
        row[0].set_ylabel(label(WIN_RATE))
        row[-1].set_axis_off()
        builder.legend_in(row[-1])
    name_members(members)
    builder.notes.append(
        "Filled and named: on the front of means; P: the share of draws of seeds in which it is. "
        "The hypervolume's reference is the dearest run and the worst win-rate of all."
    )
    return builder


def draw_front(builder: FigureBuilder, axes: Axes, family: Family, cost: str) -> list[str]:
    """One Pareto front: markers, filled on the front, and the front as steps; who is on it."""
    named, keys = dict(zip(names_of(family), family.cells, strict=True)), keys_of(family)
    values = {
        name: {s: (cell.at_end(cost)[s], q) for s, q in cell.scores(WIN_RATE).items()}
        for name, cell in named.items()
    }
    pairs = [pair for by_seed in values.values() for pair in by_seed.values()]
    worst = (max(x for x, _ in pairs), min(y for _, y in pairs))
    result = front(values, worst, options_for(cost))
    on = [point for point in result.points if point.is_on_front]
    axes.step([p.cost for p in on], [p.quality for p in on], where="post", color=GREY, lw=0.7)
    for point in result.points:
        cell = named[point.condition]
        style = style_of(cell, keys)
        fill = style.colour if point.is_on_front else "white"
        axes.plot(point.cost, point.quality, color=style.colour, marker=style.marker, mfc=fill)
        builder.count_runs(cell, result.warnings)
        add_to_legend(builder, cell, keys)
        builder.add(
            cell, condition=point.condition, part=f"membership {point.membership:.3f}",
            x_name=cost, x=point.cost, y_name=WIN_RATE, y=point.quality, n=len(cell.seeds),
            seeds=seeds_column(cell.seeds),
            verdict="on front" if point.is_on_front else "dominated",
        )  # fmt: skip
    builder.notes.append(f"Hypervolume over {label(cost)}: {result.hypervolume.text()}.")
    return [f"{p.condition}, P={p.membership:.2f}" for p in on]


def name_members(members: Sequence[tuple[Axes, Sequence[str]]]) -> None:
    """Who is on each front, in words below all points, where the panels get room for them."""
    first = members[0][0]
    low, high = first.get_ylim()
    share = min(MOST_WORDS, (1 + max(len(lines) for _, lines in members)) * WORDS_LINE / ROW)
    first.set_ylim(low - (high - low) * share / (1 - share), high)
    for axes, lines in members:
        text = "\n".join(plain(line) for line in lines)
        axes.text(0.99, 0.02, text, transform=axes.transAxes, ha="right", va="bottom", fontsize=5)


@figure(
    "targets",
    "share of runs that have reached a win-rate, over wall-clock and updates",
    "Share of runs that have reached a gold win-rate, as far as all runs are known",
    any_two(WIN_RATE, WALL, UPDATES, grouping=by_algo),
)
def targets(families: Sequence[Family]) -> FigureBuilder:
    builder, axes = begin(len(families), 2)
    builder.lists_last = False
    for family, row in in_rows(builder, families, axes, ("algo", "model")):
        value = target_of(baseline(family))
        row[0].set_title(f"{builder.group}, target {value:.3f}")
        for panel, x in zip(row, (WALL, UPDATES), strict=True):
            for cell, name in zip(family.cells, names_of(family), strict=True):
                times = times_to(Target(WIN_RATE, value, x), cell.curves(x, WIN_RATE))
                draw_arrivals(builder, panel, cell, keys_of(family), name, times)
            panel.set_ylabel(REACHED if len(families) == 1 else "share at target")
            outer(panel, x)
    builder.notes.append(
        f"Target: {TARGET_SHARE:.0%} of the way from SFT to the mean end of the freshest "
        "condition. A curve ends where the first run of it ends without the target."
    )
    return builder


def target_of(first: Cell) -> float:
    """A win-rate between the start and the end of a condition."""
    start, end = (np.mean([*each(WIN_RATE).values()]) for each in (first.starts, first.scores))
    return float(start + TARGET_SHARE * (end - start))


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

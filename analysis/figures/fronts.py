"""What quality costs: Pareto fronts, and the time to a target."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from analysis.comparison.selection import Cell
from analysis.figures.blocks import look_of, outer, seeds_text, to_legend
from analysis.figures.courses import options_for
from analysis.figures.families import Family
from analysis.figures.looks import GREY
from analysis.figures.names import DEVICE_HOURS, FLOPS, UPDATES, WALL, WIN_RATE, label
from analysis.figures.panels import begin, in_rows
from analysis.figures.pools import baseline, keys_of, names_of
from analysis.figures.sheet import Drawn, Sheet
from analysis.figures.style import ROW, page, plain
from analysis.statistics.crossings import Target, Times, times_to
from analysis.statistics.pareto import front
from analysis.statistics.survival import survival
from analysis.statistics.targets import time_to_target

# How far on the way from SFT to the end of the freshest condition a target lies.
TARGET_SHARE = 0.9
# Inches of a line of words in a panel, the most that words may take of it, and the width of a
# legend beside panels as a share of theirs.
WORDS_LINE, MOST_WORDS, LEGEND = 0.12, 0.6, 0.55
REACHED = "share of runs at the target"


def pareto(families: Sequence[Family]) -> Drawn:
    """Win-rate against wall-clock, device-hours and FLOPs, with the front and its membership."""
    axes_names = (WALL, DEVICE_HOURS, FLOPS)
    shows = "Means of cost and gold win-rate, and which conditions no other one dominates"
    # Families may tell conditions by other parts: the last column has the legend of each.
    widths = (*[1.0] * len(axes_names), LEGEND)
    figure, axes = page(
        len(families), len(widths), height=ROW, sharex="col", sharey="all", width_ratios=widths
    )
    sheet = Sheet(figure, shows)
    named: list[tuple[Axes, list[str]]] = []
    for family, row in in_rows(sheet, families, axes.tolist(), ("task", "model")):
        for panel, cost in zip(row, axes_names, strict=False):
            named.append((panel, one_front(sheet, panel, family, cost)))
            outer(panel, cost)
        row[0].set_ylabel(label(WIN_RATE))
        row[-1].set_axis_off()
        sheet.legend_in(row[-1])
    members(named)
    sheet.notes.append(
        "Filled and named: on the front of means; P: the share of draws of seeds in which it is. "
        "The hypervolume's reference is the dearest run and the worst win-rate of all."
    )
    return sheet.drawn()


def one_front(sheet: Sheet, axes: Axes, family: Family, cost: str) -> list[str]:
    """One Pareto front: markers, filled on the front, and the front as steps; who is on it."""
    named = dict(zip(names_of(family), family.cells, strict=True))
    values = {
        name: {s: (cell.at_end(cost)[s], q) for s, q in cell.scores(WIN_RATE).items()}
        for name, cell in named.items()
    }
    pairs = [pair for held in values.values() for pair in held.values()]
    worst = (max(x for x, _ in pairs), min(y for _, y in pairs))
    made = front(values, worst, options_for(cost, []))
    on = [point for point in made.points if point.is_on_front]
    axes.step([p.cost for p in on], [p.quality for p in on], where="post", color=GREY, lw=0.7)
    for point in made.points:
        cell, keys = named[point.condition], keys_of(family)
        style = look_of(cell, keys)
        fill = style.colour if point.is_on_front else "white"
        axes.plot(point.cost, point.quality, color=style.colour, marker=style.marker, mfc=fill)
        sheet.runs(cell, made.warnings)
        to_legend(sheet, cell, keys[:2])
        sheet.add(
            cell, condition=point.condition, part=f"membership {point.membership:.3f}", x_name=cost,
            x=point.cost, y_name=WIN_RATE, y=point.quality, n=len(cell.seeds),
            seeds=seeds_text(cell.seeds), verdict="on front" if point.is_on_front else "dominated",
        )  # fmt: skip
    sheet.notes.append(f"Hypervolume over {label(cost)}: {made.hypervolume.text()}.")
    return [f"{p.condition}, P={p.membership:.2f}" for p in on]


def members(named: Sequence[tuple[Axes, Sequence[str]]]) -> None:
    """Who is on each front, in words below all points, where the panels get room for them."""
    low, high = named[0][0].get_ylim()
    share = min(MOST_WORDS, (1 + max(len(lines) for _, lines in named)) * WORDS_LINE / ROW)
    named[0][0].set_ylim(low - (high - low) * share / (1 - share), high)
    for axes, lines in named:
        told = "\n".join(plain(line) for line in lines)
        axes.text(0.99, 0.02, told, transform=axes.transAxes, ha="right", va="bottom", fontsize=5)


def targets(families: Sequence[Family]) -> Drawn:
    """The share of runs that have reached a win-rate, over wall-clock and updates."""
    shows = "Share of runs that have reached a gold win-rate, as far as all runs are known"
    sheet, axes = begin(shows, len(families), 2)
    sheet.tells_last = False
    for family, row in in_rows(sheet, families, axes, ("algo", "model")):
        value = target_of(baseline(family))
        row[0].set_title(f"{sheet.group}, target {value:.3f}")
        for panel, x in zip(row, (WALL, UPDATES), strict=True):
            for cell, name in zip(family.cells, names_of(family), strict=True):
                made = times_to(Target(WIN_RATE, value, x), cell.curves(x, WIN_RATE))
                arrivals(sheet, panel, cell, keys_of(family), (name, made))
            panel.set_ylabel(REACHED if len(families) == 1 else "share at target")
            outer(panel, x)
    sheet.notes.append(
        f"Target: {TARGET_SHARE:.0%} of the way from SFT to the mean end of the freshest "
        "condition. A curve ends where the first run of it ends without the target."
    )
    return sheet.drawn()


def target_of(first: Cell) -> float:
    """A win-rate on the way of a condition."""
    begin_, end = (np.mean([*each(WIN_RATE).values()]) for each in (first.starts, first.scores))
    return float(begin_ + TARGET_SHARE * (end - begin_))


def arrivals(
    sheet: Sheet, axes: Axes, cell: Cell, keys: Sequence[str], shown: tuple[str, Times]
) -> None:
    """The share of runs at the target, up to where the first run ends without it: what comes after
    is not known of that run, and that it ended is no chance."""
    name, times = shown
    curve = survival(times.time_S, times.reached_S, np.ones((1, len(times.seeds))))
    x, y = np.append(0.0, curve.time_S), np.append(0.0, 1 - curve.left_RS[0])
    is_known = x <= times.horizon
    x, y = x[is_known], y[is_known]
    style = look_of(cell, keys)
    axes.step(x, y, where="post", color=style.colour, linestyle=style.line)
    axes.plot(x[-1], y[-1], color=style.colour, marker=style.marker)
    found = time_to_target(times, options_for(times.target.axis, []))
    sheet.runs(cell, found.warnings)
    to_legend(sheet, cell, keys[:2])
    place = f"{sheet.group}, {name}, {label(times.target.axis)}"
    told = f"{found.reached} of {found.runs} at the target, mean {found.restricted_mean.text()}"
    sheet.notes.append(f"{place} up to {found.horizon:.4g}: {told}.")
    for at, share in zip(x, y, strict=True):
        sheet.framing.see(axes, "y", REACHED, (share, share, share))
        sheet.add(
            cell, condition=name, part=f"target {times.target.value:.4f}", x_name=times.target.axis,
            x=at, y_name=REACHED, y=share, n=len(times.seeds), seeds=seeds_text(times.seeds),
        )  # fmt: skip

"""Draw quality against cost: Pareto fronts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb

from rlhf_lab_analysis.comparison.cell import Cell
from rlhf_lab_analysis.comparison.families import Family
from rlhf_lab_analysis.figures.comparable_time import TIMES, why_not_comparable
from rlhf_lab_analysis.figures.declaration import figure
from rlhf_lab_analysis.figures.figure_builder import FigureBuilder
from rlhf_lab_analysis.figures.grouping import MOST, keys_of, modes_first, names_of
from rlhf_lab_analysis.figures.mean_curves import COUNTS
from rlhf_lab_analysis.figures.panels import in_rows
from rlhf_lab_analysis.figures.primitives import add_to_legend, seeds_column, style_of
from rlhf_lab_analysis.figures.requirement import any_two
from rlhf_lab_analysis.figures.series_style import GREY, SeriesStyle
from rlhf_lab_analysis.figures.style import DOUBLE, SINGLE, page
from rlhf_lab_analysis.figures.tick_room import roomy_ticks
from rlhf_lab_analysis.statistics.arrays import Floats
from rlhf_lab_analysis.statistics.pareto import Front, FrontPoint, front
from rlhf_lab_analysis.words import (
    DEVICE_HOURS,
    FLOPS,
    UPDATES,
    VIRTUAL,
    WALL,
    WIN_RATE,
    label,
    short_label,
)

COSTS = (FLOPS, DEVICE_HOURS, WALL)
# Inches of a row of panels; the width of a legend beside panels as a share of theirs.
HEIGHT, LEGEND = 2.35, 0.55
# Means that differ by no more than this share of the least are one cost: responses of other lengths
# alone make differences of some percent.
DIFFERS = 0.25
# The share of draws from which on a number stands beside a mark.
LEAST_SHARE = 0.005
# Points: about what a panel has, what a number takes, and where it stands beside its mark.
PANEL, NUMBER = (135.0, 150.0), (11.0, 7.0)
SIDES = ((9, 6), (-9, 6), (9, -6), (-9, -6), (0, 9), (0, -9), (17, 0), (-17, 0))
MEMBERSHIP = "Beside a mark: share of draws of seeds in which it is on the front, in percent."


def of_different_cost(cells: Sequence[Cell]) -> list[Family]:
    """Conditions of a sweep whose costs differ, those first that have sync beside async. More than
    a panel can hold are left out."""
    return [
        family
        for family in modes_first(cells)
        if len(family.cells) <= MOST and any(differ(family, cost) for cost in comparable(family))
    ]


def comparable(family: Family) -> tuple[str, ...]:
    """The costs by which its conditions may be compared."""
    barred = TIMES if why_not_comparable(family.cells) else ()
    return tuple(cost for cost in costs_of(family) if cost not in barred)


def differ(family: Family, cost: str) -> bool:
    """Whether conditions differ in a cost."""
    means = [float(np.mean([*cell.at_end(cost).values()])) for cell in family.cells]
    return max(means) > (1 + DIFFERS) * min(means)


@figure(
    "pareto",
    "IQM of win-rate against FLOPs, device-hours and wall-clock, with the front and who is on it",
    "What a win-rate costs: interquartile means over seeds with their intervals on both axes",
    any_two(WIN_RATE, *COSTS, grouping=of_different_cost),
    page_of=lambda family: family.first.sweep,
)
def pareto(families: Sequence[Family]) -> FigureBuilder:
    costs = [comparable(family) for family in families]
    columns = max(map(len, costs))
    width = SINGLE if columns == 1 else DOUBLE
    # Families that differ in other parts have legends of their own, in the last column.
    has_own = len({tuple(keys_of(family)) for family in families}) > 1
    widths = [*[1.0] * columns, *[LEGEND] * has_own]
    # Environments have budgets of their own: rows share no scale.
    figure_, axes = page(
        len(families), len(widths), width, HEIGHT, sharey="row", width_ratios=widths
    )
    builder = FigureBuilder(figure_)
    rows = in_rows(builder, families, axes.tolist(), ("task", "model"))
    for (family, row), drawn in zip(rows, costs, strict=True):
        for panel, cost in zip(row, drawn, strict=False):
            draw_front(builder, panel, family, cost)
            panel.set_xlabel(short_label(cost))
            roomy_ticks(panel)
        for panel in row[len(drawn) :]:
            panel.set_axis_off()
        row[0].set_ylabel(label(WIN_RATE))
        if has_own:
            builder.legend_in(row[-1])
    texts = list(dict.fromkeys(filter(None, map(seconds_text, families))))
    if not has_own:
        builder.explain([MEMBERSHIP, *texts])
    figure_.set_figheight(figure_.get_figheight() + builder.legend_height())
    builder.notes += texts
    builder.notes.append(
        "Faint points are seeds. Dotted lines join sync and async at equal updates. The steps are "
        "the front of the interquartile means. Marks are filled as much as they belong to it: the "
        "number beside a mark is the share of draws of seeds, in percent, in which its condition "
        "is on the front. Marks without a number are on none, or have no room for it; the data "
        "have the shares of all (membership)."
    )
    return builder


def seconds_text(family: Family) -> str:
    """Why no seconds are drawn; empty if they are."""
    timed = [short_label(cost) for cost in costs_of(family) if cost in TIMES]
    reason = why_not_comparable(family.cells) if timed else ""
    return f"Not comparable: {' and '.join(timed)}, as {reason}." if reason else ""


def costs_of(family: Family) -> tuple[str, ...]:
    """The costs of a row's panels. Of virtual clusters this machine's time is no cost."""
    is_virtual = all(cell.has(VIRTUAL) for cell in family.cells)
    return (FLOPS, UPDATES, VIRTUAL) if is_virtual else COSTS


def draw_front(builder: FigureBuilder, axes: Axes, family: Family, cost: str) -> None:
    """One Pareto front: a mark with two intervals for each condition, its seeds, and the front of
    the same statistic as steps."""
    named, keys = dict(zip(names_of(family), family.cells, strict=True)), keys_of(family)
    values = {
        name: {s: (cell.at_end(cost)[s], q) for s, q in cell.scores(WIN_RATE).items()}
        for name, cell in named.items()
    }
    pairs = [pair for by_seed in values.values() for pair in by_seed.values()]
    worst = (max(x for x, _ in pairs), min(y for _, y in pairs))
    found = front(values, worst, COUNTS)
    for point in found.points:
        cell = named[point.condition]
        draw_point(axes, point, np.array([*values[point.condition].values()]), style_of(cell, keys))
        record_point(builder, axes, point, cell, keys, cost, found)
    on = sorted((one.cost.point, one.quality.point) for one in found.points if one.is_on_front)
    axes.step(*zip(*on, strict=True), where="post", color=GREY, lw=0.9, zorder=0)
    centres = {one.condition: (one.cost.point, one.quality.point) for one in found.points}
    join_modes(axes, named, centres)
    shown = [one for one in found.points if one.membership >= LEAST_SHARE]
    number_marks(
        axes,
        [centres[one.condition] for one in shown],
        [f"{100 * one.membership:.0f}" for one in shown],
        [style_of(named[one.condition], keys).colour for one in shown],
    )
    builder.notes.append(f"Hypervolume over {label(cost)}: {found.hypervolume.text()}.")


def draw_point(axes: Axes, point: FrontPoint, seeds_S2: Floats, style: SeriesStyle) -> None:
    """A condition: its seeds, a cross of intervals, and a mark as full as its membership."""
    colour, (x, y) = style.colour, (point.cost, point.quality)
    axes.plot(*seeds_S2.T, color=colour, marker=style.marker, ms=2, alpha=0.3, ls="", mew=0)
    axes.plot([x.low, x.high], [y.point] * 2, color=colour, lw=0.9)
    # In the line of the first key, which the colour alone would show.
    axes.plot([x.point] * 2, [y.low, y.high], color=colour, lw=0.9, linestyle=style.line)
    fill_colour = mixed(colour, point.membership)
    axes.plot(x.point, y.point, color=colour, marker=style.marker, mfc=fill_colour, ms=5)


def number_marks(
    axes: Axes,
    marks: Sequence[tuple[float, float]],
    texts: Sequence[str],
    colours: Sequence[str],
) -> None:
    """Numbers beside marks, each on the first of the sides where no other number stands; those
    without such a side are left out."""
    axes.autoscale_view()
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    taken: list[tuple[float, float]] = []
    for (x, y), text, colour in zip(marks, texts, colours, strict=True):
        at = np.array([(x - left) / (right - left), (y - low) / (high - low)]) * PANEL
        free = (side for side in SIDES if not any(is_near(at + side, one) for one in taken))
        if (side := next(free, None)) is None:
            continue
        taken.append(tuple(at + side))
        axes.annotate(
            text, (x, y), side, textcoords="offset points", fontsize=6, color=colour,
            ha="center", va="center",
        )  # fmt: skip


def is_near(one: Floats, other: tuple[float, float]) -> bool:
    """Whether numbers at these points would touch."""
    return bool((np.abs(one - np.array(other)) < NUMBER).all())


def mixed(colour: str, share: float) -> str:
    """White with a share of a colour."""
    red, green, blue = (1 - share * (1 - part) for part in to_rgb(colour))
    return to_hex((red, green, blue))


def record_point(
    builder: FigureBuilder,
    axes: Axes,
    point: FrontPoint,
    cell: Cell,
    keys: Sequence[str],
    cost: str,
    found: Front,
) -> None:
    """Add a condition to the figure's data and legend."""
    x, y = point.cost, point.quality
    builder.count_runs(cell, tuple(dict.fromkeys((*y.warnings, *found.warnings))))
    add_to_legend(builder, cell, keys)
    builder.add(
        cell, condition=point.condition, part=f"membership {point.membership:.3f}",
        x_name=cost, x=x.point, x_low=x.low, x_high=x.high, y_name=WIN_RATE, y=y.point,
        low=y.low, high=y.high, n=len(cell.seeds), seeds=seeds_column(cell.seeds),
        interval=f"{y.basis.options.text} of the IQM",
        verdict="on front" if point.is_on_front else "dominated",
    )  # fmt: skip


def join_modes(
    axes: Axes, named: Mapping[str, Cell], centres: Mapping[str, tuple[float, float]]
) -> None:
    """A line between sync and async of conditions that are equal in all else that is drawn."""
    by_rest: dict[tuple[str, ...], dict[str, str]] = {}
    for name, cell in named.items():
        rest = tuple(
            str(cell.parts.get(key))
            for key in ("task", "model", "algo", "updates_per_round", "passes", "group_size")
        )
        by_rest.setdefault(rest, {})[str(cell.parts["mode"])] = name
    for modes in by_rest.values():
        if {"sync", "async"} <= set(modes):
            ends = [centres[modes[mode]] for mode in ("sync", "async")]
            axes.plot(*zip(*ends, strict=True), color=GREY, lw=0.8, ls=":", zorder=0)

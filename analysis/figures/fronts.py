"""Draw quality against cost: Pareto fronts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from rlhf_lab_analysis.comparison.families import Family
from rlhf_lab_analysis.comparison.selection import Cell
from rlhf_lab_analysis.figures.declaration import figure
from rlhf_lab_analysis.figures.figure_builder import FigureBuilder
from rlhf_lab_analysis.figures.grouping import keys_of, modes_first, names_of
from rlhf_lab_analysis.figures.mean_curves import COUNTS, options_for
from rlhf_lab_analysis.figures.panels import in_rows
from rlhf_lab_analysis.figures.primitives import add_to_legend, seeds_column, style_of
from rlhf_lab_analysis.figures.requirement import any_two
from rlhf_lab_analysis.figures.series_style import GREY
from rlhf_lab_analysis.figures.style import ROW, page
from rlhf_lab_analysis.statistics.aggregates import aggregates, iqm
from rlhf_lab_analysis.statistics.pareto import front
from rlhf_lab_analysis.statistics.results import Estimate
from rlhf_lab_analysis.words import DEVICE_HOURS, FLOPS, UPDATES, VIRTUAL, WALL, WIN_RATE, label

COSTS = (FLOPS, DEVICE_HOURS, WALL)
# The width of a legend beside panels as a share of theirs, and the ticks that long numbers leave
# room for.
LEGEND, FEW_TICKS = 0.55, 3


@figure(
    "pareto",
    "IQM of win-rate against FLOPs, device-hours and wall-clock, with intervals and the front",
    "What a win-rate costs: interquartile means over seeds with their intervals on both axes",
    any_two(WIN_RATE, *COSTS, grouping=modes_first),
)
def pareto(families: Sequence[Family]) -> FigureBuilder:
    # Families may differ in other parts: the last column has the legend of each.
    widths = (*[1.0] * len(COSTS), LEGEND)
    # Sweeps have budgets of their own: rows share no scale.
    figure_, axes = page(len(families), len(widths), height=ROW, width_ratios=widths)
    builder = FigureBuilder(figure_)
    for family, row in in_rows(builder, families, axes.tolist(), ("task", "model")):
        for panel, cost in zip(row, costs_of(family), strict=False):
            draw_front(builder, panel, family, cost)
            panel.set_xlabel(label(cost))
            panel.xaxis.set_major_locator(MaxNLocator(FEW_TICKS))
        row[0].set_ylabel(label(WIN_RATE))
        row[-1].set_axis_off()
        builder.legend_in(row[-1])
    builder.notes.append(
        "Faint points are seeds. Dotted lines join sync and async at equal updates. The steps are "
        "the front: a filled mark is on that of means. The data have P, the share of draws of "
        "seeds in which a condition is on the front."
    )
    return builder


def costs_of(family: Family) -> tuple[str, ...]:
    """The costs of a row's panels. Of virtual clusters this machine's time is no cost."""
    is_virtual = all(cell.has(VIRTUAL) for cell in family.cells)
    return (FLOPS, UPDATES, VIRTUAL) if is_virtual else COSTS


def draw_front(builder: FigureBuilder, axes: Axes, family: Family, cost: str) -> None:
    """One Pareto front: a mark with two intervals for each condition, its seeds, and the front of
    means as steps."""
    named, keys = dict(zip(names_of(family), family.cells, strict=True)), keys_of(family)
    values = {
        name: {s: (cell.at_end(cost)[s], q) for s, q in cell.scores(WIN_RATE).items()}
        for name, cell in named.items()
    }
    pairs = [pair for by_seed in values.values() for pair in by_seed.values()]
    worst = (max(x for x, _ in pairs), min(y for _, y in pairs))
    result = front(values, worst, options_for(cost))
    centres = {}
    for point in result.points:
        cell, style = named[point.condition], style_of(named[point.condition], keys)
        x, y = (middle(values[point.condition], place) for place in (0, 1))
        centres[point.condition] = (x.point, y.point)
        seeds = np.array([*values[point.condition].values()])
        axes.plot(*seeds.T, color=style.colour, marker=style.marker, ms=2, alpha=0.3, ls="", mew=0)
        axes.plot([x.low, x.high], [y.point] * 2, color=style.colour, lw=0.9)
        axes.plot([x.point] * 2, [y.low, y.high], color=style.colour, lw=0.9)
        fill = style.colour if point.is_on_front else "white"
        axes.plot(x.point, y.point, color=style.colour, marker=style.marker, mfc=fill, ms=4)
        builder.count_runs(cell, result.warnings)
        add_to_legend(builder, cell, keys)
        builder.add(
            cell, condition=point.condition, part=f"membership {point.membership:.3f}",
            x_name=cost, x=x.point, x_low=x.low, x_high=x.high, y_name=WIN_RATE, y=y.point,
            low=y.low, high=y.high, n=len(cell.seeds), seeds=seeds_column(cell.seeds),
            interval=f"{y.basis.options.text} of the IQM",
            verdict="on front" if point.is_on_front else "dominated",
        )  # fmt: skip
    on = sorted(centres[point.condition] for point in result.points if point.is_on_front)
    axes.step(*zip(*on, strict=True), where="post", color=GREY, lw=0.7, zorder=0)
    join_modes(axes, named, centres)
    builder.notes.append(f"Hypervolume over {label(cost)}: {result.hypervolume.text()}.")


def middle(by_seed: Mapping[int, tuple[float, float]], place: int) -> Estimate:
    """The interquartile mean over seeds of a cost (0) or a quality (1), with its interval."""
    scores = {"": {"": [pair[place] for pair in by_seed.values()]}}
    return aggregates(scores, COUNTS, {"iqm": iqm})[""]["iqm"]


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
            axes.plot(*zip(*ends, strict=True), color=GREY, lw=0.6, ls=":", zorder=0)

"""Aggregates of the win-rate over environments and seeds."""

from __future__ import annotations

from collections.abc import Sequence

from rlhf_lab_analysis.comparison.families import Family
from rlhf_lab_analysis.comparison.selection import Cell
from rlhf_lab_analysis.figures.declaration import figure
from rlhf_lab_analysis.figures.families import group_by
from rlhf_lab_analysis.figures.figure_builder import FigureBuilder
from rlhf_lab_analysis.figures.grouping import by_sweep, keys_of
from rlhf_lab_analysis.figures.interval_rows import interval_rows
from rlhf_lab_analysis.figures.mean_curves import options_for
from rlhf_lab_analysis.figures.panels import in_rows
from rlhf_lab_analysis.figures.requirement import any_two
from rlhf_lab_analysis.figures.style import DOUBLE, page
from rlhf_lab_analysis.figures.tick_room import roomy_ticks
from rlhf_lab_analysis.statistics.aggregates import MEASURES, aggregates
from rlhf_lab_analysis.words import WIN_RATE, label

# Inches of a row of an interval, and of what is around the rows.
LINE, AROUND = 0.16, 0.42
TITLES = {"iqm": "IQM", "median": "median", "mean": "mean", "optimality_gap": "optimality gap"}


@figure(
    "aggregates",
    "median, IQM, mean and optimality gap of the win-rate over environments and seeds",
    "Aggregates of the gold win-rate of the last version over environments and seeds",
    any_two(WIN_RATE, grouping=by_sweep),
)
def aggregate_bars(families: Sequence[Family]) -> FigureBuilder:
    heights = [AROUND + LINE * len(family.cells) for family in families]
    columns = len(MEASURES)
    figure_, axes = page(len(families), columns, DOUBLE, heights, sharex="col", sharey="row")
    builder = FigureBuilder(figure_)
    for family, row in in_rows(builder, families, axes.tolist(), ("task",)):
        conditions = by_condition(builder, family)
        for cell in (cell for cells in conditions.values() for cell in cells):
            builder.count_runs(cell)
        scores = {
            name: {cell.env: [*cell.scores(WIN_RATE).values()] for cell in cells}
            for name, cells in conditions.items()
        }
        every = [one for tasks in scores.values() for values in tasks.values() for one in values]
        found = aggregates(scores, options_for(WIN_RATE, every))
        for panel, measure in zip(row, MEASURES, strict=True):
            rows = [(name, found[name][measure], cells[0]) for name, cells in conditions.items()]
            interval_rows(builder, panel, rows, keys_of(family), WIN_RATE)
            panel.set_xlabel(TITLES[measure])
            # Long names of rows leave little room for four panels beside them.
            roomy_ticks(panel)
        row[0].set_title(f"{builder.group}: {label(WIN_RATE)}")
    return builder


def by_condition(builder: FigureBuilder, family: Family) -> dict[str, list[Cell]]:
    """The cells of each condition in all environments, by a short name. Conditions that lack an
    environment are left out with a warning."""
    envs = {cell.env for cell in family.cells}
    keys = [key for key in keys_of(family) if key != "model"]
    groups = group_by(family.cells, lambda cell: cell.condition)
    whole = [cells for cells in groups if len(cells) == len(envs)] or groups[-1:]
    for cells in groups:
        if cells not in whole:
            builder.warn(
                f"{cells[0].condition} is not in all environments, so left out of aggregates"
            )
    short = [cells[0].title(keys) or "no correction" for cells in whole]
    is_clear = len({*short}) == len(short)
    names = short if is_clear else [cells[0].condition for cells in whole]
    return dict(zip(names, whole, strict=True))

"""Aggregates of the win-rate over several environments and seeds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from textwrap import fill, wrap

from rlhf_lab_analysis.comparison.cell import Cell
from rlhf_lab_analysis.comparison.families import Family
from rlhf_lab_analysis.figures.declaration import figure
from rlhf_lab_analysis.figures.families import group_by
from rlhf_lab_analysis.figures.figure_builder import FigureBuilder
from rlhf_lab_analysis.figures.grouping import by_sweep, distinct_names, keys_of
from rlhf_lab_analysis.figures.interval_rows import interval_rows
from rlhf_lab_analysis.figures.mean_curves import options_for
from rlhf_lab_analysis.figures.panels import in_rows
from rlhf_lab_analysis.figures.requirement import any_two
from rlhf_lab_analysis.figures.style import DOUBLE, page, plain
from rlhf_lab_analysis.figures.tick_room import roomy_ticks
from rlhf_lab_analysis.statistics.aggregates import aggregates
from rlhf_lab_analysis.words import WIN_RATE, in_words, label

# Inches of a row of an interval, of each further line of its name, and of what is around the rows.
LINE, MORE_LINE, AROUND = 0.16, 0.1, 0.42
# Letters of a line of a name: longer ones leave no room for the panels.
LETTERS = 40
# Measures by the number of environments from which on they are apart: over two, the median is the
# mean. With win-rates the optimality gap is 1 less the mean, and adds nothing.
MEASURES = {"iqm": ("IQM", 2), "mean": ("mean", 2), "median": ("median", 3)}


def over_environments(cells: Sequence[Cell]) -> list[Family]:
    """Sweeps with several environments: of one, aggregates are its mean and IQM over seeds, which
    other figures have."""
    return [family for family in by_sweep(cells) if environments(family) > 1]


def environments(family: Family) -> int:
    return len({cell.env for cell in family.cells})


@figure(
    "aggregates",
    "IQM, mean and, from three environments on, median of the win-rate over them and seeds",
    "Aggregates of the gold win-rate of the last version over environments and seeds",
    any_two(WIN_RATE, grouping=over_environments),
)
def aggregate_bars(families: Sequence[Family]) -> FigureBuilder:
    named = [by_condition(family) for family in families]
    heights = [AROUND + row_height(names) * len(names) for names in named]
    most = max(map(environments, families))
    measures = [name for name, (_, least) in MEASURES.items() if most >= least]
    columns = len(measures)
    figure_, axes = page(len(families), columns, DOUBLE, heights, sharex="col", sharey="row")
    builder = FigureBuilder(figure_)
    rows_of_families = in_rows(builder, families, axes.tolist(), ("task",))
    for (family, row), conditions in zip(rows_of_families, named, strict=True):
        warn_of_left_out(builder, family, conditions)
        for cell in (cell for cells in conditions.values() for cell in cells):
            builder.count_runs(cell)
        scores = {
            name: {cell.env: [*cell.scores(WIN_RATE).values()] for cell in cells}
            for name, cells in conditions.items()
        }
        every = [one for tasks in scores.values() for values in tasks.values() for one in values]
        found = aggregates(scores, options_for(WIN_RATE, every))
        for panel, measure in zip(row, measures, strict=True):
            rows = [(name, found[name][measure], cells[0]) for name, cells in conditions.items()]
            interval_rows(builder, panel, rows, keys_of(family), WIN_RATE)
            panel.set_xlabel(MEASURES[measure][0])
            # Long names of rows leave little room for panels beside them.
            roomy_ticks(panel)
        counts = [text.get_text().rpartition(" (n=")[2] for text in row[0].get_yticklabels()]
        texts = map(" (n=".join, zip(shown_names(conditions), counts, strict=True))
        row[0].set_yticks(range(len(counts)), ["\n".join(wrap(text, LETTERS)) for text in texts])
        # Beside it are other panels, which a long title would push away.
        row[0].set_title(fill(f"{in_words(builder.group)}: {label(WIN_RATE)}", LETTERS))
    return builder


def shown_names(names: Iterable[str]) -> list[str]:
    """Names of rows in words; where some are long, without the words that all of them have."""
    texts = [in_words(plain(name)) for name in names]
    if max(map(len, texts)) <= LETTERS or len(texts) == 1:
        return texts
    shared = set.intersection(*(set(text.split()) for text in texts))
    own = (" ".join(word for word in text.split() if word not in shared) for text in texts)
    return [short or text for short, text in zip(own, texts, strict=True)]


def row_height(names: Iterable[str]) -> float:
    """Inches of each row, as many as the name of the most lines needs."""
    texts = [f"{name} (n=00)" for name in shown_names(names)]
    return LINE + MORE_LINE * (max(len(wrap(text, LETTERS)) for text in texts) - 1)


def by_condition(family: Family) -> dict[str, list[Cell]]:
    """The cells of each condition in all environments, by a short name. Conditions that lack an
    environment are left out."""
    envs = {cell.env for cell in family.cells}
    keys = [key for key in keys_of(family) if key != "model"]
    groups = group_by(family.cells, lambda cell: cell.condition)
    whole = [cells for cells in groups if len(cells) == len(envs)] or groups[-1:]
    return dict(zip(distinct_names([cells[0] for cells in whole], keys), whole, strict=True))


def warn_of_left_out(
    builder: FigureBuilder, family: Family, conditions: Mapping[str, Sequence[Cell]]
) -> None:
    drawn = {cell.condition for cells in conditions.values() for cell in cells}
    for cell in family.cells:
        if cell.condition not in drawn:
            builder.warn(f"{cell.condition} is not in all environments, so left out of aggregates")

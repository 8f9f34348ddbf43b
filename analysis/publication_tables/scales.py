"""Tabulate async against sync at each scale (arXiv:2410.18252, figures 1 and 9, table 6)."""

from __future__ import annotations

from rlhf_lab_analysis.comparison.selection import Selection
from rlhf_lab_analysis.publication_tables.baseline import Baseline, pairs_of_sweep
from rlhf_lab_analysis.publication_tables.differences import Difference, cells_of, compare
from rlhf_lab_analysis.publication_tables.entries import Entry, PublicationTable
from rlhf_lab_analysis.publication_tables.estimates import last_scores
from rlhf_lab_analysis.publication_tables.metrics import Metric
from rlhf_lab_analysis.publication_tables.naming import ConditionColumns
from rlhf_lab_analysis.publication_tables.options import TableOptions
from rlhf_lab_analysis.publication_tables.speed import cost_of
from rlhf_lab_analysis.ranges import unique
from rlhf_lab_analysis.rounding import interval_text
from rlhf_lab_analysis.shown_runs import runs_text, seeds_of
from rlhf_lab_analysis.tables.table import Tables
from rlhf_lab_analysis.words import WALL

SYNC = Baseline({"mode": "sync"})


def scales(_: Tables, selection: Selection, options: TableOptions) -> list[PublicationTable]:
    """Quality and seconds of every asynchronous condition and of its synchronous one."""
    metric, pairs = Metric(options.quality), []
    for sweep in dict.fromkeys(cell.sweep for cell in selection.cells):
        pairs += pairs_of_sweep(selection.only(sweep=sweep), SYNC)[0]
    compared, warnings = compare(pairs, metric, options)
    if not compared:
        return []
    cells = cells_of([one.pair for one in compared])
    conditions = ConditionColumns(cells)
    rows = []
    for one in compared:
        entries, more = row_of(one, metric, options)
        rows.append((*conditions.entries(one.pair.cell), *entries))
        warnings += more
    caption = (
        f"Asynchronous conditions beside synchronous ones: {metric.name} of the last evaluated "
        "version, difference in pairs of common seeds with the t interval that the verdict is read "
        "from, at its level, and wall-clock up to it, evaluation left out (speed-up: ratio of "
        "geometric means); other numbers have their "
        f"{interval_text(options.interval, of_shares=True)}."
        f"{metric.margin_text(options.margin_of(metric.column))} {runs_text(seeds_of(cells))}."
    )
    quality = ("seeds", "sync", "async", "difference", "level", "verdict")
    columns = (*conditions.heads, *quality, "sync, s", "async, s", "speed-up")
    return [PublicationTable("scales", caption, columns, tuple(rows), unique(warnings))]


def row_of(
    one: Difference, metric: Metric, options: TableOptions
) -> tuple[tuple[Entry, ...], list[str]]:
    pair, warnings = one.pair, list(one.warnings)
    both: list[Entry] = []
    for cell in (pair.baseline, pair.cell):
        entries, more = last_scores(cell, [metric], options)
        both += entries
        warnings += more
    before, _, _ = cost_of(pair.baseline, None, WALL, options)
    after, ratio, more_of_cost = cost_of(pair.cell, pair.baseline, WALL, options)
    shown = (one.seeds, *both, one.value, one.level, one.verdict)
    return (*shown, before, after, ratio), [*warnings, *more_of_cost]

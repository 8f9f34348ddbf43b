"""Scores over seeds as entries of tables, with what is doubtful about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rlhf_lab_analysis.comparison.cell import Cell
from rlhf_lab_analysis.publication_tables.entries import Entry, Measured, table_entry
from rlhf_lab_analysis.publication_tables.metrics import Metric
from rlhf_lab_analysis.publication_tables.options import TableOptions
from rlhf_lab_analysis.statistics.aggregates import MEASURES, aggregates, points
from rlhf_lab_analysis.statistics.results import Options

SCORES = "scores"
SAME = "where all seeds are equal, no interval is given"
ONE_SEED = "one seed: no interval, and nothing is known of other seeds"


def over_seeds(
    scores: Mapping[int, float],
    measure: str,
    interval: Options,
    digits: int = 3,
    is_share: bool = False,
) -> tuple[Measured, tuple[str, ...]]:
    """A measure of one condition's seeds, with its interval from two seeds on, and warnings."""
    values = [scores[seed] for seed in sorted(scores)]
    if min(values) == max(values):
        warning = ONE_SEED if len(values) == 1 else SAME
        return Measured(points({SCORES: values})[measure], digits=digits), (warning,)
    chosen = interval.for_shares(values) if is_share else interval
    measures = {measure: MEASURES[measure]}
    estimate = aggregates({SCORES: {SCORES: values}}, chosen, measures)[SCORES][measure]
    return table_entry(estimate, digits), estimate.warnings


def last_scores(
    cell: Cell, metrics: Sequence[Metric], options: TableOptions
) -> tuple[list[Entry], list[str]]:
    """Metrics of the last evaluated version; None where a run of the condition lacks one."""
    entries: list[Entry] = []
    warnings: list[str] = []
    for metric in metrics:
        entry: Entry = None
        more: tuple[str, ...] = (lacks(cell, metric.column),)
        if cell.has(metric.column):
            entry, more = estimate_of(cell.scores(metric.column), metric, options)
        entries.append(entry)
        warnings += more
    return entries, warnings


def estimate_of(
    scores: Mapping[int, float], metric: Metric, options: TableOptions
) -> tuple[Measured, tuple[str, ...]]:
    """The measure of a metric that the options name."""
    return over_seeds(scores, options.measure, options.interval, metric.digits, metric.is_share)


def lacks(cell: Cell, column: str) -> str:
    """The warning for a condition without a metric; empty if it has it."""
    return "" if cell.has(column) else f"{cell.condition}: not every run has {column}"

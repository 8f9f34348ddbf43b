"""Scores over seeds as entries, with what is doubtful about them."""

from __future__ import annotations

from collections.abc import Mapping

from analysis.comparison.selection import Cell
from analysis.statistics.aggregates import MEASURES, aggregates, points
from analysis.statistics.results import Options
from analysis.written.entries import Measured, measured

SCORES = "scores"
SAME = "where all seeds are equal, no interval is given"
ONE_SEED = "one seed: no interval, and nothing can be said of other seeds"


def over_seeds(
    scores: Mapping[int, float],
    measure: str,
    options: Options,
    digits: int = 3,
    is_share: bool = False,
) -> tuple[Measured, tuple[str, ...]]:
    """A measure of one condition's seeds, with its interval from two seeds on, and warnings."""
    values = [scores[seed] for seed in sorted(scores)]
    if min(values) == max(values):
        told = ONE_SEED if len(values) == 1 else SAME
        return Measured(points({SCORES: values})[measure], digits=digits), (told,)
    measures = {measure: MEASURES[measure]}
    chosen = options.for_shares(values) if is_share else options
    estimate = aggregates({SCORES: {SCORES: values}}, chosen, measures)[SCORES][measure]
    return measured(estimate, digits), estimate.warnings


def lacks(cell: Cell, column: str) -> str:
    """The warning for a condition without a metric; empty if it has it."""
    return "" if cell.has(column) else f"{cell.condition}: not every run has {column}"

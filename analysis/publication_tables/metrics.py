"""Metrics and costs in tables: their names, digits, direction, and margins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlhf_lab_analysis.comparison.cell import Cell
from rlhf_lab_analysis.statistics.equivalence import Margin, points
from rlhf_lab_analysis.words import (
    ACCURACY,
    COMPLETIONS,
    DEVICE_HOURS,
    FLOPS,
    GOLD,
    KL,
    PROXY,
    UPDATES,
    WALL,
    WIN_RATE,
    head,
    is_share,
)

# Of which a table has those that any condition has.
USUAL = (WIN_RATE, ACCURACY, GOLD, PROXY, KL, "ppl/sft_response")
LOWER_IS_BETTER = ("kl/", "ppl/", "seconds/", "timing/", "loss/")
# Digits after the point; three of all others.
DIGITS = {KL: 2, WALL: 1, DEVICE_HOURS: 4} | dict.fromkeys(
    (COMPLETIONS, FLOPS, UPDATES, "x/rounds", "x/generated_tokens", "x/trained_tokens"), 0
)


@dataclass(frozen=True)
class Metric:
    """A column of evaluated versions."""

    column: str

    @property
    def name(self) -> str:
        return head(self.column)

    @property
    def is_share(self) -> bool:
        return is_share(self.column)

    @property
    def higher_is_better(self) -> bool:
        return not self.column.startswith(LOWER_IS_BETTER)

    @property
    def digits(self) -> int:
        return DIGITS.get(self.column, 3)

    def margin(self, size: float) -> Margin:
        """A margin in points for shares, else in the metric's own unit."""
        return points(100 * size) if self.is_share else Margin(size)

    def margin_text(self, size: float | None) -> str:
        """A sentence for captions; empty without a margin."""
        return "" if size is None else f" Margin, stated beforehand: {self.margin(size).text}."


def metrics_of(cells: Sequence[Cell], chosen: Sequence[str]) -> list[Metric]:
    """The chosen metrics, or of the usual ones those that any condition has."""
    usual = [column for column in USUAL if any(cell.has(column) for cell in cells)]
    return [Metric(column) for column in chosen or usual]

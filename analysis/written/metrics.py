"""What metrics are called in tables, which direction is better, and in what a margin is told."""

from __future__ import annotations

from dataclasses import dataclass

from analysis.comparison.selection import Cell
from analysis.statistics.equivalence import Margin, points


@dataclass(frozen=True)
class Metric:
    """A metric of evaluated versions. name: in tables; is_share: from 0 to 1."""

    column: str
    name: str
    is_share: bool = False
    higher_is_better: bool = True
    digits: int = 3

    def margin(self, size: float) -> Margin:
        """A margin in points for shares, else in the metric's own unit."""
        return points(100 * size) if self.is_share else Margin(size)


TOLD = (
    Metric("gold/win_rate", "gold win-rate", is_share=True),
    Metric("accuracy/mean", "accuracy", is_share=True),
    Metric("gold/mean", "gold score"),
    Metric("proxy/mean", "proxy score"),
    Metric("kl/sft_k1", "KL to SFT, nats", higher_is_better=False, digits=2),
    Metric("ppl/sft_response", "perplexity under SFT", higher_is_better=False),
)
LOWER_IS_BETTER = ("kl/", "ppl/", "seconds/", "timing/", "loss/")


def metric_of(column: str) -> Metric:
    """What is known of a metric; of others its name says it."""
    for one in TOLD:
        if one.column == column:
            return one
    is_gap = column.startswith("gap/")
    is_share = column.endswith(("win_rate", "tie_rate", "eos_rate")) and not is_gap
    return Metric(column, column, is_share, not column.startswith(LOWER_IS_BETTER))


def metrics_of(cells: list[Cell], wanted: tuple[str, ...]) -> list[Metric]:
    """The metrics asked for, or of the usual ones those that any condition has."""
    if wanted:
        return [metric_of(column) for column in wanted]
    return [one for one in TOLD if any(cell.has(one.column) for cell in cells)]

"""What tables show: metrics and costs, the baseline, margins, and the level of intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rlhf_lab_analysis.comparison.cell import Cell
from rlhf_lab_analysis.plots.lines import AXES, METRICS, column, end, has, is_recorded
from rlhf_lab_analysis.plots.style import Style
from rlhf_lab_analysis.statistics.equivalence import Margin, points
from rlhf_lab_analysis.statistics.results import Method, Options
from rlhf_lab_analysis.words import (
    ACCURACY,
    DEVICE_HOURS,
    GOLD,
    KL,
    PROXY,
    VIRTUAL,
    WALL,
    WIN_RATE,
    head,
    is_share,
)

# Of which a table has those that any condition has.
USUAL = (WIN_RATE, ACCURACY, GOLD, PROXY, KL, "ppl/sft_response", WALL)
SHORT = {**METRICS, **AXES}
LOWER_IS_BETTER = ("kl/", "ppl/", "seconds/", "timing/", "loss/")
COST = "x/"
# Digits after the point: none of what is counted, three of all others.
DIGITS = {KL: 2, WALL: 1, VIRTUAL: 1, DEVICE_HOURS: 4}


@dataclass(frozen=True)
class Metric:
    """A column of evaluated versions or of rounds."""

    column: str

    @property
    def name(self) -> str:
        return head(self.column)

    @property
    def is_share(self) -> bool:
        return is_share(self.column)

    @property
    def is_cost(self) -> bool:
        return self.column.startswith(COST)

    @property
    def higher_is_better(self) -> bool:
        return not self.column.startswith(LOWER_IS_BETTER)

    @property
    def digits(self) -> int:
        return DIGITS.get(self.column, 0 if self.is_cost else 3)

    def ends(self, cell: Cell) -> dict[int, float]:
        """The last number of each seed: of the last judged version; of what rounds alone record the
        mean of their last tenth, as in figures. Empty where a run has none."""
        if cell.has(self.column):
            return cell.scores(self.column)
        if not is_recorded(cell, self.column) or not has(cell, self.column, self.column):
            return {}
        points = end(cell, "", self.column, self.column).seeds
        return {seed: float(rows["y"].iloc[-1]) for seed, rows in points.items()}


@dataclass(frozen=True)
class TableOptions:
    """metrics: columns or their short names (plots.lines), the usual ones if empty. baseline:
    KEY=VALUE or a condition's name, the usual one of each sweep if empty. margin: the largest
    difference of a share that does not matter, stated beforehand; margins: of other metrics."""

    metrics: Sequence[str] = ()
    baseline: str = ""
    margin: float = 0.02
    margins: Mapping[str, float] = field(default_factory=dict)
    interval: Options = field(default_factory=lambda: Options(method=Method.t))
    style: Style = field(default_factory=Style)

    def interval_text(self, metrics: Sequence[Metric]) -> str:
        """A sentence on the intervals of means of these metrics."""
        shares = ", of shares on log odds" if any(one.is_share for one in metrics) else ""
        return f"Means over seeds have {self.interval.text} intervals{shares}."

    def margin_of(self, metric: Metric) -> Margin | None:
        """The margin of a metric, of shares in points; None where none was stated."""
        margins = {SHORT.get(name, name): size for name, size in self.margins.items()}
        size = margins.get(metric.column, self.margin if metric.is_share else None)
        if size is None:
            return None
        return points(100 * size) if metric.is_share else Margin(size)

    def metrics_of(self, cells: Sequence[Cell]) -> list[Metric]:
        """The chosen metrics, or of the usual ones those that any condition has. Raises UserError
        for one that none has."""
        chosen = [column(name, SHORT, cells) for name in self.metrics]
        usual = [name for name in USUAL if any(cell.has(name) for cell in cells)]
        return [Metric(name) for name in chosen or usual]

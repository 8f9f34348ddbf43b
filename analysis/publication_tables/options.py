"""Options of the tables: metrics, baseline, margin, target, and the method of intervals."""

from __future__ import annotations

from dataclasses import dataclass, field

from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.statistics.aggregates import MEASURES
from rlhf_lab_analysis.statistics.results import Method, Options
from rlhf_lab_analysis.words import COMPLETIONS, WALL, WIN_RATE, is_share


@dataclass(frozen=True)
class TableOptions:
    """metrics: columns of versions, the usual ones if empty. baseline: see `parse_baseline`, the
    usual one of each sweep if empty. margin: the largest difference of a share that does not
    matter, stated beforehand; margins: of other metrics. target: the gold win-rate to reach, half
    of what there is to gain if None. axes: on which the way to it is measured. Raises UserError for
    a measure that there is not."""

    metrics: tuple[str, ...] = ()
    measure: str = "mean"
    baseline: str = ""
    margin: float = 0.02
    margins: dict[str, float] = field(default_factory=dict)
    quality: str = WIN_RATE
    target: float | None = None
    axes: tuple[str, ...] = (WALL, COMPLETIONS)
    interval: Options = field(default_factory=lambda: Options(method=Method.t))

    def __post_init__(self) -> None:
        if self.measure not in MEASURES:
            raise UserError(f"--measure {self.measure}: pass one of {', '.join(MEASURES)}")

    def margin_of(self, column: str) -> float | None:
        """The margin of a metric; None where none was stated."""
        return self.margins.get(column, self.margin if is_share(column) else None)

"""A table that is written: texts, numbers and intervals in rows, and a caption."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

from rlhf_lab_analysis.rounding import fixed
from rlhf_lab_analysis.statistics.results import Estimate


@dataclass(frozen=True)
class Measured:
    """A number with the ends of its interval; NaN ends where there is no interval."""

    point: float
    low: float = math.nan
    high: float = math.nan
    digits: int = 3

    @property
    def has_interval(self) -> bool:
        return not (math.isnan(self.low) or math.isnan(self.high))

    def text(self) -> str:
        """Such as 0.512 [0.431, 0.604], or 0.512 alone."""
        point = fixed(self.point, self.digits)
        if not self.has_interval:
            return point
        return f"{point} [{fixed(self.low, self.digits)}, {fixed(self.high, self.digits)}]"


Entry: TypeAlias = str | int | float | Measured | None


@dataclass(frozen=True)
class PublicationTable:
    """A table. name: of its files. caption: what it shows, of which runs. warnings: what is
    doubtful about it. rows: an entry for each column; None where there is no value."""

    name: str
    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Entry, ...], ...]
    warnings: tuple[str, ...] = ()


def table_entry(estimate: Estimate, digits: int = 3) -> Measured:
    """An estimate of the statistics as an entry."""
    return Measured(estimate.point, estimate.low, estimate.high, digits)


def plain(entry: Entry) -> str:
    """An entry as text; empty for nothing."""
    if entry is None:
        return ""
    if isinstance(entry, Measured):
        return entry.text()
    return fixed(entry, 3) if isinstance(entry, float) else str(entry)

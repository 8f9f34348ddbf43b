"""A table that is written: texts, numbers and intervals in rows, and a caption."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.plots.style import Style
from rlhf_lab_analysis.ranges import first_few, listed
from rlhf_lab_analysis.rounding import fixed


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
Row: TypeAlias = tuple[Entry, ...]


@dataclass(frozen=True)
class PublicationTable:
    """A table. name: of its files. caption: what it shows, of which runs. notes: what is doubtful
    about it. rows: an entry for each column; None where there is no value."""

    name: str
    caption: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()

    def styled(self, style: Style) -> PublicationTable:
        """The columns that the style names, all if it names none of these, with its labels."""
        kept = [self.columns.index(name) for name in style.heads if name in self.columns]
        kept = kept or [*range(len(self.columns))]
        heads = tuple(style.text(self.columns[place]) for place in kept)
        rows = tuple(tuple(row[place] for place in kept) for row in self.rows)
        return replace(self, columns=heads, rows=rows)


class Notes:
    """What is doubtful about a table: each text once, with the conditions that it is about."""

    def __init__(self) -> None:
        self._names: dict[str, dict[str, None]] = {}

    def add(self, name: str, *texts: str) -> None:
        for text in filter(None, texts):
            self._names.setdefault(text, {})[name] = None

    @property
    def lines(self) -> tuple[str, ...]:
        """Each text with the first of its conditions, and how many more there are."""
        names = {text: "; ".join(first_few([*own])) for text, own in self._names.items()}
        return tuple(f"{text}: {own}" if own else text for text, own in names.items())


def check_heads(style: Style, tables: Sequence[PublicationTable]) -> None:
    """Raises UserError for a head that no table has."""
    known = dict.fromkeys(name for table in tables for name in table.columns)
    if wrong := [name for name in style.heads if name not in known]:
        raise UserError(f"heads: {wrong[0]}: no table has this column; there are {listed(known)}")


def plain(entry: Entry) -> str:
    """An entry as text; empty for nothing."""
    if entry is None:
        return ""
    if isinstance(entry, Measured):
        return entry.text()
    return fixed(entry, 3) if isinstance(entry, float) else str(entry)

"""A table of texts, numbers and intervals, and how it is written: LaTeX, Markdown and CSV."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import pandas as pd

from rlhf_lab.runs.disk import atomic_file
from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.markdown import escaped, one_line, rows_of
from rlhf_lab_analysis.plots.style import Style
from rlhf_lab_analysis.ranges import first_few, listed
from rlhf_lab_analysis.rounding import fixed

# Rows from which on a table goes over pages.
LONG = 40
LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", '"': r"\textquotedbl{}",
    # After the end of a row these would be its options.
    "[": "{[}", "]": "{]}", "*": "{*}",
}  # fmt: skip


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


def as_latex(table: PublicationTable) -> str:
    """A `table`, or a `longtable`, with a caption and a label, for \\usepackage{booktabs}; notes
    are comments."""
    texts = pd.DataFrame([[latex_entry(entry) for entry in row] for row in table.rows])
    texts.columns = pd.Index([latex(name) for name in table.columns])
    is_long = len(table.rows) > LONG
    body = texts.style.hide(axis="index").to_latex(
        column_format=f"@{{}}{''.join('r' if right else 'l' for right in numeric(table))}@{{}}",
        position=None if is_long else "t",
        position_float=None if is_long else "centering",
        hrules=True,
        label=f"tab:{re.sub('[^A-Za-z0-9]', '-', table.name)}",
        caption=latex(table.caption),
        environment="longtable" if is_long else None,
    )
    return "".join([*(f"% {one_line(note)}\n" for note in table.notes), body])


def latex(text: str) -> str:
    """A text that LaTeX sets as it is; dashes beside each other are not joined."""
    signs = [LATEX.get(sign, sign) for sign in one_line(text)]
    return re.sub("-(?=-)", "-{}", "".join(signs))


def latex_entry(entry: Entry) -> str:
    """A text, or a number with a true minus and its interval in small letters."""
    if isinstance(entry, str) or entry is None:
        return latex(entry or "")
    if not isinstance(entry, Measured):
        return in_maths(plain(entry))
    point = in_maths(fixed(entry.point, entry.digits))
    if not entry.has_interval:
        return point
    ends = ", ".join(fixed(value, entry.digits) for value in (entry.low, entry.high))
    return rf"{point} {{\scriptsize {in_maths(f'[{ends}]')}}}"


def in_maths(number: str) -> str:
    return f"${number.replace('inf', chr(92) + 'infty ')}$" if number else ""


def numeric(table: PublicationTable) -> list[bool]:
    """Whether each column holds numbers alone, empty cells aside."""
    kinds = [{type(entry) for entry in column} for column in zip(*table.rows, strict=True)]
    return [str not in own and own != {type(None)} for own in kinds]


def as_markdown(table: PublicationTable) -> str:
    """Caption, table and notes."""
    heads, rows = [*map(escaped, table.columns)], [[*map(markdown_entry, r)] for r in table.rows]
    lines = [escaped(table.caption), "", *rows_of(heads, rows, numeric(table))]
    notes = [f"- {escaped(note)}" for note in table.notes]
    return "\n".join([*lines, *([""] if notes else []), *notes]) + "\n"


def markdown_entry(entry: Entry) -> str:
    """Intervals have brackets of their own, which are no links."""
    return escaped(entry) if isinstance(entry, str) else plain(entry)


def as_csv(table: PublicationTable) -> str:
    """All digits; an interval is three columns (`X`, `X low`, `X high`)."""
    columns: dict[str, list[Entry]] = {}
    for place, name in enumerate(table.columns):
        cells = [row[place] for row in table.rows]
        numbers = [c if isinstance(c, Measured) else None for c in cells]
        columns[name] = [c.point if isinstance(c, Measured) else c for c in cells]
        if any(numbers):
            columns[f"{name} low"] = [c.low if c else None for c in numbers]
            columns[f"{name} high"] = [c.high if c else None for c in numbers]
    frame = pd.DataFrame({name: pd.Series(cells, dtype=object) for name, cells in columns.items()})
    return str(frame.to_csv(index=False, lineterminator="\n"))


FORMATS: Mapping[str, Callable[[PublicationTable], str]] = {
    "tex": as_latex,
    "md": as_markdown,
    "csv": as_csv,
}


def save(tables: Sequence[PublicationTable], folder: Path) -> None:
    """Write tables in all formats. The files take their places when all are written, so that a
    folder does not hold tables of two selections."""
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        for table in tables:
            for suffix, text_of in FORMATS.items():
                draft = stack.enter_context(atomic_file(folder / f"{table.name}.{suffix}"))
                draft.write_text(text_of(table), encoding="utf-8")

"""A written table as LaTeX (booktabs), Markdown and CSV."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import pandas as pd

from rlhf_lab_analysis.markdown import escaped, one_line, rows_of
from rlhf_lab_analysis.publication_tables.entries import Entry, Measured, PublicationTable, plain
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


def save(table: PublicationTable, folder: Path) -> list[Path]:
    """Write a table in all formats; returns the files."""
    folder.mkdir(parents=True, exist_ok=True)
    found = []
    for suffix, text_of in FORMATS.items():
        path = folder / f"{table.name}.{suffix}"
        path.write_text(text_of(table), encoding="utf-8")
        found.append(path)
    return found

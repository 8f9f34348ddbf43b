"""A written table as LaTeX (booktabs), Markdown and CSV."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Mapping
from pathlib import Path

from rlhf_lab_analysis.markdown import rows_of
from rlhf_lab_analysis.publication_tables.entries import Entry, Measured, PublicationTable, plain
from rlhf_lab_analysis.publication_tables.escapes import latex, markdown
from rlhf_lab_analysis.rounding import fixed

# What follows a name in the heads of an interval's three columns.
ENDS = ("", " low", " high")


def as_latex(table: PublicationTable) -> str:
    """A `table` with a caption and a label, for \\usepackage{booktabs}."""
    aligned = "".join("r" if right else "l" for right in numeric(table))
    lines = [
        r"\begin{table}[t]",
        r"\centering\small",
        rf"\caption{{{latex(table.caption)}}}",
        rf"\label{{tab:{label(table.name)}}}",
        rf"\begin{{tabular}}{{@{{}}{aligned}@{{}}}}",
        r"\toprule",
        " & ".join(map(latex, table.columns)) + r" \\",
        r"\midrule",
        *(" & ".join(map(latex_entry, row)) + r" \\" for row in table.rows),
        r"\bottomrule",
        r"\end{tabular}",
        *(rf"\par\footnotesize {latex(warning)}" for warning in table.warnings),
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def label(name: str) -> str:
    """A name of letters, digits and dashes."""
    return "".join(c if c.isascii() and c.isalnum() else "-" for c in name)


def latex_entry(entry: Entry) -> str:
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
    """A number with a true minus; nothing for one that is not known."""
    return f"${number.replace('inf', chr(92) + 'infty ')}$" if number else ""


def numeric(table: PublicationTable) -> list[bool]:
    """Whether each column holds numbers alone, empty cells aside."""
    columns = ([row[i] for row in table.rows if row[i] is not None] for i in indices(table))
    return [bool(cells) and not any(isinstance(c, str) for c in cells) for cells in columns]


def indices(table: PublicationTable) -> range:
    return range(len(table.columns))


def as_markdown(table: PublicationTable) -> str:
    """Caption, table and warnings."""
    heads, rows = [*map(markdown, table.columns)], [[*map(markdown_entry, r)] for r in table.rows]
    lines = [markdown(table.caption), "", *rows_of(heads, rows, numeric(table))]
    warnings = [f"- {markdown(warning)}" for warning in table.warnings]
    return "\n".join([*lines, *([""] if warnings else []), *warnings]) + "\n"


def markdown_entry(entry: Entry) -> str:
    """Intervals have brackets of their own, which are no links."""
    return markdown(entry) if isinstance(entry, str) else plain(entry)


def as_csv(table: PublicationTable) -> str:
    """All digits; an interval is three columns (`X`, `X low`, `X high`)."""
    spread = [any(isinstance(row[i], Measured) for row in table.rows) for i in indices(table)]
    heads = [
        f"{name}{end}"
        for name, is_spread in zip(table.columns, spread, strict=True)
        for end in (ENDS if is_spread else ENDS[:1])
    ]
    rows = (
        [value for entry, is_spread in zip(row, spread, strict=True)
         for value in csv_values(entry, is_spread)]
        for row in table.rows
    )  # fmt: skip
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows([heads, *rows])
    return file.getvalue()


def csv_values(entry: Entry, is_spread: bool) -> list[str | int | float]:
    """One value, or three of an interval; empty where a number is not known."""
    if isinstance(entry, Measured):
        return [known(value) for value in (entry.point, entry.low, entry.high)]
    value = "" if entry is None else known(entry) if isinstance(entry, float) else entry
    return [value, *([""] * 2 if is_spread else [])]


def known(value: float) -> float | str:
    return "" if math.isnan(value) else value


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

"""Turn damaged files into findings, and read everything that is not damaged."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rlhf_lab.runs.reading import Unreadable, content
from rlhf_lab_analysis.sources.findings import Finding, Kind
from rlhf_lab_analysis.sources.record import Reading

CSV_BYTES = 2**32
# The widest field: a CSV of Open RL Benchmark may hold a table in one.
FIELD = 2**27


def read_or_report(read: Callable[[], Reading], run: str = "") -> Reading:
    """The result of `read`; if it raises Unreadable, a finding about the run, or about the file if
    the run is not known."""
    try:
        return read()
    except Unreadable as error:
        return Reading((), (damage_finding(error, run),))


def damage_finding(error: Unreadable, run: str = "", place: str = "") -> Finding:
    """The finding that a file, or a place in it, cannot be read. place: the run's, if known."""
    parts = (error.path.name if place else "", error.place, error.reason)
    return Finding(Kind.damaged, run, place or str(error.path), ": ".join(filter(None, parts)))


@dataclass(frozen=True)
class CsvTable:
    """What a CSV file holds: names of its columns, its rows without empty values, each with the
    number of its last line, and what is left out of it."""

    names: list[str]
    rows: list[tuple[int, dict[str, str]]]
    problems: list[str]


def csv_table(path: Path) -> CsvTable:
    """A CSV file as far as it can be read. Raises Unreadable if it is no text in UTF-8, or its
    first line is none of CSV."""
    text = decode_text(content(path, CSV_BYTES), path)
    csv.field_size_limit(FIELD)
    lines = csv.reader(io.StringIO(text, newline=""), strict=True)
    table = CsvTable([], [], [])
    try:
        for line in filter(None, lines):
            if not table.names:
                table.names.extend(line)
            elif len(line) == len(table.names):
                row = {name: text for name, text in zip(table.names, line, strict=True) if text}
                table.rows.append((lines.line_num, row))
            else:
                counts = f"{len(line)} of {len(table.names)} values"
                table.problems.append(f"line {lines.line_num} has {counts} and is left out")
    except csv.Error as error:
        if not table.names:
            raise Unreadable(path, f"it is no CSV ({error})", "line 1") from error
        table.problems.append(f"line {lines.line_num} is no CSV ({error}): read up to it")
    return table


def parsed(text: str) -> int | float | str:
    """A number, or the text."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def decode_text(data: bytes, path: Path) -> str:
    """Text in UTF-8, with or without a mark of that at its start."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise Unreadable(
            path, f"byte {error.start + 1} is not UTF-8: convert the file to UTF-8", f"line {line}"
        ) from error

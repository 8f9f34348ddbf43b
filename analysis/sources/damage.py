"""Turn damaged files into findings, and read everything that is not damaged."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rlhf_lab.runs.reading import Unreadable, content, unreadable
from rlhf_lab.runs.walk import find
from rlhf_lab_analysis.sources.findings import Finding, Kind
from rlhf_lab_analysis.sources.record import Reading, joined

CSV_BYTES = 2**32
# The widest field: a CSV of Open RL Benchmark may hold a table in one.
FIELD = 2**27


def read_or_report(read: Callable[[], Reading], run: str = "") -> Reading:
    """The result of `read`; if a file cannot be read, a finding about the run, or about the file if
    the run is not known."""
    try:
        return read()
    except Unreadable as error:
        return Reading((), (damage_finding(error, run),))
    except OSError as error:
        return Reading((), (damage_finding(unreadable(str(error.filename), error), run),))


def read_below(
    root: Path, is_wanted: Callable[[Path], bool], read: Callable[[Path], Reading]
) -> Reading:
    """What `read` makes of a file, or of each wanted file in a folder or below it;
    files and folders that cannot be read are findings."""
    problems: list[Unreadable] = []
    readings = [read_or_report(partial(read, path)) for path in find(root, is_wanted, problems)]
    return joined([*readings, Reading((), tuple(map(damage_finding, problems)))])


def damage_finding(error: Unreadable, run: str = "", place: str = "") -> Finding:
    """The finding that a file, or a place in it, cannot be read. place: the run's, if known."""
    parts = (error.path.name if place else "", error.place, error.reason)
    return Finding(Kind.damaged, run, place or str(error.path), ": ".join(filter(None, parts)))


@dataclass(frozen=True)
class CsvTable:
    """What a CSV file holds: names of its columns; its rows that are not empty, each with the
    number of its last line, without empty values and columns without a name; what is left out of
    it. Spaces around names and values are no part of them."""

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
        for line in lines:
            cells = [text.strip() for text in line]
            if not any(cells):
                continue
            if not table.names:
                table.names.extend(cells)
            elif len(line) == len(table.names):
                named = zip(table.names, cells, strict=True)
                row = {name: text for name, text in named if name and text}
                table.rows.append((lines.line_num, row))
            else:
                counts = f"{len(line)} of {len(table.names)} values"
                table.problems.append(f"line {lines.line_num} has {counts} and is left out")
    except csv.Error as error:
        if not table.names:
            raise Unreadable(path, f"it is no CSV ({error})", "line 1") from error
        table.problems.append(f"line {lines.line_num} is no CSV ({error}): read up to it")
    return table


def decode_text(data: bytes, path: Path) -> str:
    """Text in UTF-8, with or without a mark of that at its start."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise Unreadable(
            path, f"byte {error.start + 1} is not UTF-8: convert the file to UTF-8", f"line {line}"
        ) from error

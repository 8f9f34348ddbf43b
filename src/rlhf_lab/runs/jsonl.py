"""JSONL files: written in one step, read where a killed process may have cut the last line."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from rlhf_lab.runs.atomic_folder import atomic_write
from rlhf_lab.runs.reading import Unreadable, adapter_of, checked, content, parse_json
from rlhf_lab.runs.schema import kind_of


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Replace a JSONL file in one step."""
    atomic_write(path, "".join(json.dumps(row) + "\n" for row in rows))


# A run of a million rounds has files of some GiB.
ROWS_BYTES = 64 * 2**30


class Rows(list[dict[str, Any]]):
    """Rows of a JSONL file; `is_cut` says that a last, incomplete line was left out."""

    is_cut = False


def read_rows(path: Path) -> Rows:
    """Rows of a JSONL file, none if there is no file; those of a run's file have their types. Only
    the last line may be incomplete: its writer was killed. Raises Unreadable at another line that
    is no such row."""
    rows = Rows()
    # A link to nowhere is damage, and no missing file.
    if not os.path.lexists(path):
        return rows
    data = content(path, ROWS_BYTES)
    lines = data.splitlines()
    for number, line in enumerate(lines, start=1):
        try:
            rows.append(parse_json(line, dict[str, Any], path))
        except Unreadable as error:
            if number == len(lines) and not data.endswith(b"\n"):
                rows.is_cut = True
                break
            raise with_remedy(error, number) from error
    if (kind := kind_of(path)) is not None:
        check_rows(rows, kind, path)
    return rows


def check_rows(rows: Rows, kind: Any, path: Path) -> None:
    """Raise Unreadable at the first row that is not of `kind`. The rows stay as they are: a file
    that is written again keeps its bytes."""
    try:
        adapter_of(list[kind]).validate_python(rows, strict=True)
    except ValidationError:
        # All at once is faster; one by one names the line.
        for number, row in enumerate(rows, start=1):
            try:
                checked(row, kind, path)
            except Unreadable as error:
                raise with_remedy(error, number) from error


def with_remedy(error: Unreadable, number: int) -> Unreadable:
    """The error of a line, with its number and what to do. A schedule needs all of its lines."""
    is_needed = error.path.name == "schedule.jsonl"
    remedy = "restore the file" if is_needed else "delete the line to read the others"
    place = f"line {number} {error.place}".rstrip()
    return Unreadable(error.path, f"{error.reason}: {remedy}", place)

"""JSONL files: written in one step, read where a killed process may have cut the last line."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlhf_lab.runs.atomic_folder import discard
from rlhf_lab.runs.reading import Unreadable, checked, content, parse_json
from rlhf_lab.runs.recorded import kind_of


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Replace a JSONL file in one step."""
    draft = path.with_suffix(".draft")
    discard(draft)
    draft.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    draft.replace(path)


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
    kind = kind_of(path)
    data = content(path, ROWS_BYTES)
    lines = data.splitlines()
    for number, line in enumerate(lines, start=1):
        try:
            row = parse_json(line, dict[str, Any], path, f"line {number}")
        except Unreadable as error:
            if number < len(lines) or data.endswith(b"\n"):
                raise with_remedy(error) from error
            rows.is_cut = True
            break
        if kind is not None:
            try:
                checked(row, kind, path, f"line {number}")
            except Unreadable as error:
                raise with_remedy(error) from error
        rows.append(row)
    return rows


def with_remedy(error: Unreadable) -> Unreadable:
    """The refusal of a line, with what to do. A schedule is of no use without one of its lines."""
    is_needed = error.path.name == "schedule.jsonl"
    remedy = "restore the file" if is_needed else "delete the line to read the others"
    return Unreadable(error.path, f"{error.reason}: {remedy}", error.place)

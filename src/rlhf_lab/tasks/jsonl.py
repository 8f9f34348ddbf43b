"""Reading a user's JSONL: whatever is wrong is refused with the file, the line and the remedy."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rlhf_lab.types import UserError

COLUMNS = "add it, or name the column that holds it in the task's options"


def read_jsonl(path: Path, required: Sequence[str]) -> list[dict[str, Any]]:
    """All rows of a task's file; each must be an object with the required fields as text."""
    return list(numbered_rows(path, required, "task.path", COLUMNS).values())


def numbered_rows(
    path: Path, required: Sequence[str], key: str, remedy: str
) -> dict[int, dict[str, Any]]:
    """All rows of a file by line number.

    key: the option that named the file. remedy: what to do about a field that is not there.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise UserError(
            f"{key}: {path} cannot be read ({error.strerror}): pass {key}=<where the rows are>"
        ) from error
    rows = {
        number: read_line(f"{key}: {path}, line {number}", line, required, remedy)
        for number, line in enumerate(raw.splitlines(), start=1)
        if line.strip()
    }
    if not rows:
        raise UserError(f"{key}: {path} is empty: it must hold one JSON object a line")
    return rows


def read_line(place: str, line: bytes, required: Sequence[str], remedy: str) -> dict[str, Any]:
    """One row, or the reason why it cannot be used."""
    try:
        row = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise UserError(
            f"{place} is not valid UTF-8 (byte {error.start + 1}): convert the file to UTF-8"
        ) from error
    except ValueError as error:
        raise UserError(f"{place} is not JSON ({error}): write one object a line") from error
    if not isinstance(row, dict):
        raise UserError(f"{place} is not a JSON object: write fields and values in braces")
    for field in required:
        if not isinstance(row.get(field), str):
            problem = "no text in" if field in row else "no"
            raise UserError(
                f"{place} has {problem} field {field!r} (fields found: {', '.join(sorted(row))}): "
                f"{remedy}"
            )
    return row

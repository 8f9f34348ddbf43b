"""Reading a user's JSONL: whatever is wrong is refused with the file, the line and the remedy."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rlhf_lab.types import UserError


def read_jsonl(path: Path, required: Sequence[str]) -> list[dict[str, Any]]:
    """All rows of a file; each must be an object with the required fields as text."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise UserError(
            f"task.path: {path} cannot be read ({error.strerror}): pass task.path=<folder or file "
            "of JSON lines>"
        ) from error
    rows = []
    for number, line in enumerate(raw.splitlines(), start=1):
        if line.strip():
            rows.append(read_line(path, number, line, required))
    if not rows:
        raise UserError(f"task.path: {path} is empty: it must hold one JSON object a line")
    return rows


def read_line(path: Path, number: int, line: bytes, required: Sequence[str]) -> dict[str, Any]:
    """One row, or the reason why it cannot be used."""
    place = f"{path}, line {number}"
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
                "add it, or name the column that holds it in the task's options"
            )
    return row

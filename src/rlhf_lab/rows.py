"""JSONL files: written in one step, read where a killed process may have cut the last line."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlhf_lab.types import UserError


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Replace a JSONL file in one step."""
    draft = path.with_suffix(".draft")
    draft.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    draft.replace(path)


class Rows(list[dict[str, Any]]):
    """Rows of a JSONL file; `is_cut` says that a last, incomplete line was left out."""

    is_cut = False


def read_rows(path: Path) -> Rows:
    """Rows of a JSONL file. Only the last line may be incomplete: its writer was killed."""
    rows = Rows()
    lines = path.read_bytes().splitlines() if path.exists() else []
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
        except ValueError as error:
            if number < len(lines):
                raise UserError(
                    f"{path}, line {number} is not JSON: delete the line to read the others"
                ) from error
            rows.is_cut = True
        else:
            rows.append(row)
    return rows

"""Rows of a task from wherever they are: a local file, a folder with a file a split, or the hub."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlhf_lab.tasks.jsonl import read_jsonl
from rlhf_lab.types import UserError

Row = dict[str, Any]


def read_split(
    path: str, file: str, hub: Mapping[str, str], columns: Sequence[str]
) -> tuple[list[Row], str]:
    """Rows of a split and the name of their source.

    path: a JSONL file, a folder that holds `file`, or the name of a hub dataset.
    hub: the arguments of `datasets.load_dataset` beside the name (split, and config if any).
    """
    local = Path(path)
    if local.is_dir():
        return read_jsonl(local / file, columns), str(local / file)
    if local.suffix == ".jsonl" or local.is_file():
        return read_jsonl(local, columns), path
    return read_hub(path, hub, columns), path


def read_hub(path: str, hub: Mapping[str, str], columns: Sequence[str]) -> list[Row]:
    """Rows of a hub dataset, through the package `datasets`."""
    remedy = f"pass task.path=<local folder or .jsonl file with the fields {', '.join(columns)}>"
    try:
        from datasets import load_dataset
    except ImportError as error:
        raise UserError(
            f"task.path={path} is not a local file or folder, and hub datasets need the extra hub: "
            f"pip install 'rlhf-lab[hub]', or {remedy}"
        ) from error
    try:
        rows = [dict(row) for row in load_dataset(path, **hub)]
    except Exception as error:  # the hub client raises over twenty kinds, all meaning: not there
        raise UserError(
            f"task.path={path} is not a local file or folder and could not be read from the hub "
            f"({type(error).__name__}): {remedy}"
        ) from error
    missing = [column for column in columns if rows and column not in rows[0]]
    if missing or not rows:
        found = ", ".join(sorted(rows[0])) if rows else "no rows"
        raise UserError(f"task.path={path} lacks {', '.join(missing)} (found: {found}): {remedy}")
    return rows

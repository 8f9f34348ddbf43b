"""Rows of a task from wherever they are: a local file, a folder with a file a split, or the hub."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rlhf_lab.tasks.extras import require
from rlhf_lab.tasks.jsonl import JsonLines
from rlhf_lab.tasks.parquet import read_parquet
from rlhf_lab.tasks.tables import ColumnTable, NoSuchFile, RequiredFields, Table
from rlhf_lab.types.errors import UserError

SUFFIXES = (".jsonl", ".parquet")


def read_split(path: str, split_file: str, hub: Mapping[str, str], demand: RequiredFields) -> Table:
    """Rows of a split.

    path: a file, a folder that holds `split_file`.jsonl or .parquet, or the name of a hub dataset.
    hub: the arguments of `datasets.load_dataset` beside the name (split, and config if any).
    """
    local = Path(path)
    try:
        is_folder = local.is_dir()
    except OSError as error:
        raise NoSuchFile(
            f"{demand.key}: {path} cannot be read ({error.strerror}): pass {demand.key}=<where the "
            "rows are>"
        ) from error
    if is_folder:
        return read_file(file_in(local, split_file), demand)
    if local.suffix in SUFFIXES or local.is_file():
        return read_file(local, demand)
    return read_hub(path, hub, demand)


def file_in(folder: Path, split_file: str) -> Path:
    """The one file of a split in a folder."""
    found = [path for suffix in SUFFIXES if (path := folder / f"{split_file}{suffix}").is_file()]
    if len(found) == 1:
        return found[0]
    names = " and ".join(f"{split_file}{suffix}" for suffix in SUFFIXES)
    if found:
        raise UserError(f"task.path: {folder} holds {names}: keep one of them")
    raise NoSuchFile(
        f"task.path: {folder / split_file}.jsonl cannot be read (no such file, and no "
        f"{split_file}.parquet): pass task.path=<where the rows are>"
    )


def read_file(path: Path, demand: RequiredFields) -> Table:
    """Rows of a file, by its suffix."""
    return read_parquet(path, demand) if path.suffix == ".parquet" else JsonLines(path, demand)


def read_hub(path: str, hub: Mapping[str, str], demand: RequiredFields) -> Table:
    """Rows of a hub dataset, through the package `datasets`."""
    remedy = (
        "pass task.path=<local folder, .jsonl or .parquet file with the fields "
        f"{', '.join(demand.text)}>"
    )
    option = f"task.path={path} is no local file or folder: a hub dataset"
    require("datasets", "hub", option, remedy)
    from datasets import load_dataset

    try:
        rows = load_dataset(path, **hub)
    except Exception as error:  # the hub client raises over twenty kinds, all meaning: not there
        raise UserError(
            f"task.path={path} is not a local file or folder and could not be read from the hub "
            f"({type(error).__name__}): {remedy}"
        ) from error
    return ColumnTable(
        path,
        rows.column_names,
        lambda names: rows.select_columns(names),
        lambda index: dict(rows[index]),
        demand,
    )

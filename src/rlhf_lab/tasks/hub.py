"""Read the rows of a split from a local file, from a folder with one file per split, or the hub."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping
from pathlib import Path

from rlhf_lab.tasks.extras import require_package
from rlhf_lab.tasks.jsonl import JsonLines
from rlhf_lab.tasks.parquet import read_parquet
from rlhf_lab.tasks.tables import ColumnTable, RequiredFields, Table
from rlhf_lab.types.errors import UserError

SUFFIXES = (".jsonl", ".parquet")
OTHER_FORMATS = (".csv", ".tsv", ".gz", ".zst", ".xz", ".bz2", ".zip", ".arrow")


def read_split(
    path: str, split_file: str, hub: Mapping[str, str], required: RequiredFields
) -> Table:
    """Rows of a split.

    path: a file, a folder that holds `split_file`.jsonl or .parquet, or the name of a hub dataset.
    hub: the arguments of `datasets.load_dataset` beside the name (split, and config if any).
    """
    local = Path(path)
    try:
        is_folder = local.is_dir()
    except OSError as error:
        raise required.no_such_file(local, str(error.strerror)) from error
    if is_folder:
        return read_file(file_in(local, split_file, required), required)
    if local.suffix in OTHER_FORMATS:
        raise UserError(
            f"{required.key}={path}: a {local.suffix} file is not read: convert it to .jsonl, one "
            "JSON object a line, or to .parquet"
        )
    if local.suffix in SUFFIXES or local.is_file():
        return read_file(local, required)
    return read_hub(path, hub, required)


def file_in(folder: Path, split_file: str, required: RequiredFields) -> Path:
    """The one file of a split in a folder."""
    files = [path for suffix in SUFFIXES if (path := folder / f"{split_file}{suffix}").is_file()]
    if len(files) == 1:
        return files[0]
    names = " and ".join(f"{split_file}{suffix}" for suffix in SUFFIXES)
    if files:
        raise UserError(f"{required.key}: {folder} holds {names}: keep one of them")
    reason = f"no such file, and no {split_file}.parquet"
    raise required.no_such_file(folder / f"{split_file}.jsonl", reason)


def digest_of(path: Path) -> str:
    """The SHA-256 of a file, which is read once as long as it stays as it is."""
    status = path.stat()
    return read_digest(path, status.st_mtime_ns, status.st_size)


@functools.cache
def read_digest(path: Path, changed: int, size: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_file(path: Path, required: RequiredFields) -> Table:
    """Rows of a file, by its suffix."""
    return read_parquet(path, required) if path.suffix == ".parquet" else JsonLines(path, required)


def read_hub(path: str, hub: Mapping[str, str], required: RequiredFields) -> Table:
    """Rows of a hub dataset, through the package `datasets`."""
    remedy = (
        f"pass {required.key}=<local folder, .jsonl or .parquet file with the fields "
        f"{', '.join((*required.text, *required.columns))}>"
    )
    option = f"{required.key}={path} is no local file or folder: a hub dataset"
    require_package("datasets", "hub", option, remedy)
    from datasets import load_dataset

    try:
        rows = load_dataset(path, **hub)
    except Exception as error:  # the hub client raises over twenty types if there is none
        raise UserError(
            f"{required.key}={path} is not a local file or folder and could not be read from the "
            f"hub ({type(error).__name__}): {remedy}"
        ) from error
    return ColumnTable(
        path,
        rows.column_names,
        rows.select_columns,
        lambda index: dict(rows[index]),
        required,
    )

"""Read the rows of a split from a local file, from a folder with one file per split, or the hub."""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlhf_lab.tasks.optional_packages import require_package
from rlhf_lab.tasks.tables import (
    ColumnTable,
    JsonLines,
    NoSuchFile,
    RequiredFields,
    Row,
    Table,
    first_line,
    first_of_parquet,
    read_parquet,
)
from rlhf_lab.types.errors import UserError

SUFFIXES = (".jsonl", ".parquet")
# A split of a data set as the hub stores it: train-00000-of-00002.parquet.
SHARD = re.compile(r"(.+)-\d{5}-of-\d{5}\.parquet")
OTHER_FORMATS = (".csv", ".tsv", ".gz", ".zst", ".xz", ".bz2", ".zip", ".arrow")


def read_split(
    path: str, split_file: str, hub: Mapping[str, str], required: RequiredFields
) -> Table:
    """Rows of a split.

    path: a file, a folder that holds `split_file`.jsonl or .parquet, or a clone of
    a hub dataset, or the name of one.
    hub: the arguments of `datasets.load_dataset` beside the name (split, and config if any).
    """
    files = local_files(path, split_file, hub, required)
    if not files:
        return read_hub(path, hub, required)
    return read_parquet(files, required) if is_parquet(files) else JsonLines(files[0], required)


def first_row(path: str, split_file: str, hub: Mapping[str, str], required: RequiredFields) -> Row:
    """The first row of a split, by which its columns are known; {} where there is none."""
    files = local_files(path, split_file, hub, required)
    if not files:
        rows = asked_hub(path, required, lambda library: library.load_dataset(path, **hub))
        return dict(rows[0]) if len(rows) else {}
    first = first_of_parquet if is_parquet(files) else first_line
    return first(files[0], required)


def is_parquet(files: Sequence[Path]) -> bool:
    """Whether files of a split are Parquet; any other is JSONL."""
    return files[0].suffix == ".parquet"


def local_files(
    path: str, split_file: str, hub: Mapping[str, str], required: RequiredFields
) -> list[Path]:
    """The local files of a split, [] for a name of the hub. See read_split."""
    if is_folder(path, required):
        return files_of(Path(path), split_file, hub.get("name", ""), required)
    local = Path(path)
    if local.suffix in OTHER_FORMATS:
        raise UserError(
            f"{required.key}={path}: a {local.suffix} file is not read: convert it to .jsonl, one "
            "JSON object a line, or to .parquet"
        )
    return [local] if local.suffix in SUFFIXES or local.is_file() else []


def is_folder(path: str, required: RequiredFields) -> bool:
    try:
        return Path(path).is_dir()
    except OSError as error:
        raise required.no_such_file(Path(path), str(error.strerror)) from error


def split_files(folder: Path, split_file: str, config: str = "") -> list[Path]:
    """The files in a folder that may hold a split: one of each format, and the shards of a clone
    of a hub dataset in their order. config: of the hub dataset."""
    plain = [folder / f"{split_file}{suffix}" for suffix in SUFFIXES]
    of_split = sorted(path for path, split in shards_of(folder, config) if split == split_file)
    return [path for path in plain if path.is_file()] + of_split


def split_names(folder: Path) -> set[str]:
    """The names of the splits that a folder has files of."""
    plain = {path.stem for path in folder.glob("*") if path.suffix in SUFFIXES}
    return plain | {split for _, split in shards_of(folder)}


def shards_of(folder: Path, config: str = "") -> Iterator[tuple[Path, str]]:
    """The shards in a clone of a hub dataset, each with the name of its split."""
    for place in {folder, folder / "data", folder / config, folder / "data" / config}:
        for path in place.glob("*.parquet"):
            if shard := SHARD.fullmatch(path.name):
                yield path, shard[1]


def files_of(folder: Path, split_file: str, config: str, required: RequiredFields) -> list[Path]:
    """The one file of a split in a folder, or its shards."""
    files = split_files(folder, split_file, config)
    if not files:
        reason = f"no such file, and no {split_file}.parquet"
        raise required.no_such_file(folder / f"{split_file}.jsonl", reason)
    if len(files) > 1 and not all(SHARD.fullmatch(path.name) for path in files):
        names = " and ".join(str(path.relative_to(folder)) for path in files[:3])
        raise UserError(f"{required.key}: {folder} holds {names}: keep one of them")
    return files


def digest_of(path: Path) -> str:
    """The SHA-256 of a file, which is read once as long as it stays as it is."""
    status = path.stat()
    return read_digest(path, status.st_mtime_ns, status.st_size)


@functools.cache
def read_digest(path: Path, changed: int, size: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_hub(path: str, hub: Mapping[str, str], required: RequiredFields) -> Table:
    """Rows of a hub dataset, through the package `datasets`."""
    rows = asked_hub(path, required, lambda library: library.load_dataset(path, **hub))
    wanted = [name for name in rows.column_names if required.wants(name, True)]
    rows = rows.select_columns(wanted)
    return ColumnTable(path, wanted, rows.select_columns, lambda index: dict(rows[index]), required)


def hub_splits(path: str, required: RequiredFields) -> set[str]:
    return set(asked_hub(path, required, lambda library: library.get_dataset_split_names(path)))


def asked_hub(path: str, required: RequiredFields, ask: Callable[[Any], Any]) -> Any:
    """What the package `datasets` answers. Raises UserError if it cannot."""
    remedy = (
        f"pass {required.key}=<local folder, .jsonl or .parquet file with the fields "
        f"{', '.join((*required.text, *required.columns))}>"
    )
    option = f"{required.key}={path} is no local file or folder: a hub dataset"
    require_package("datasets", "hub", option, remedy)
    import datasets

    try:
        return ask(datasets)
    except Exception as error:  # the hub client raises over twenty types if there is none
        raise NoSuchFile(
            f"{required.key}={path} is not a local file or folder and could not be read from the "
            f"hub ({type(error).__name__}): {remedy}"
        ) from error

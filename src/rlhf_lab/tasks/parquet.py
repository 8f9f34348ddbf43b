"""A user's Parquet file, through pyarrow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rlhf_lab.runs.reading import Unreadable, parsing
from rlhf_lab.tasks.extras import require
from rlhf_lab.tasks.tables import ColumnTable, NoSuchFile, RequiredFields, Row
from rlhf_lab.types.errors import UserError


def read_parquet(path: Path, demand: RequiredFields) -> ColumnTable:
    """All rows of a file; the columns are held in Arrow's form, about as large as their text."""
    if not path.is_file():
        raise NoSuchFile(
            f"{demand.key}: {path} cannot be read (no such file): pass {demand.key}=<where the "
            "rows are>"
        )
    require("pyarrow", "hub", f"{demand.key}={path}")
    import pyarrow
    import pyarrow.parquet

    try:
        with parsing(path, "Parquet file"):
            table = pyarrow.parquet.read_table(path)
            # That texts are UTF-8, and lists end within their column.
            table.validate(full=True)
            names = table.column_names
    except Unreadable as error:
        raise UserError(f"{demand.key}: {error}: write it anew, or pass JSONL") from error
    if len(set(names)) < len(names):
        raise UserError(f"{demand.key}: {path} has a column twice: rename one of them")
    # Python has not all times that Arrow has: they are looked at before the first step too.
    risky = [field.name for field in table.schema if not is_plain(field.type)]

    def scan(names: list[str]) -> Iterator[Row]:
        chosen = table.select(list(dict.fromkeys([*names, *risky])))
        for batch in chosen.to_batches(max_chunksize=4096):
            yield from batch.to_pylist()

    def get(index: int) -> Row:
        row: Row = table.slice(index, 1).to_pylist()[0]
        return row

    return ColumnTable(str(path), names, scan, get, demand)


def is_plain(kind: Any) -> bool:
    """Whether every value of a column's type is one of Python's."""
    from pyarrow import types

    return any(
        test(kind)
        for test in (types.is_integer, types.is_floating, types.is_boolean, types.is_string,
                     types.is_large_string, types.is_null)
    )  # fmt: skip

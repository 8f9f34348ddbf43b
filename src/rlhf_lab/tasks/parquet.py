"""Rows of a Parquet file, through pyarrow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rlhf_lab.runs.reading import Unreadable, parsing
from rlhf_lab.tasks.extras import require_package
from rlhf_lab.tasks.tables import ColumnTable, RequiredFields, Row
from rlhf_lab.types.errors import UserError


def read_parquet(path: Path, required: RequiredFields) -> ColumnTable:
    """All rows of a file; its columns are in memory in Arrow's form, as large as their text."""
    if not path.is_file():
        raise required.no_such_file(path, "no such file")
    require_package("pyarrow", "hub", f"{required.key}={path}")
    import pyarrow
    import pyarrow.parquet

    try:
        with parsing(path, "Parquet file"):
            table = pyarrow.parquet.read_table(path)
            # Checks that texts are UTF-8, and that lists end within their column.
            table.validate(full=True)
            names = table.column_names
    except Unreadable as error:
        raise UserError(f"{required.key}: {error}: write it anew, or pass JSONL") from error
    if len(set(names)) < len(names):
        raise UserError(f"{required.key}: {path} has a column twice: rename one of them")
    # Python cannot represent all times of Arrow's: those columns are read now too.
    risky = [field.name for field in table.schema if not is_plain(field.type)]

    def scan(names: list[str]) -> Iterator[Row]:
        chosen = table.select(list(dict.fromkeys([*names, *risky])))
        for batch in chosen.to_batches(max_chunksize=4096):
            yield from batch.to_pylist()

    def get(index: int) -> Row:
        row: Row = table.slice(index, 1).to_pylist()[0]
        return row

    return ColumnTable(str(path), names, scan, get, required)


def is_plain(kind: Any) -> bool:
    """Whether Python can represent every value of a column's type."""
    from pyarrow import types

    return any(
        test(kind)
        for test in (types.is_integer, types.is_floating, types.is_boolean, types.is_string,
                     types.is_large_string, types.is_null)
    )  # fmt: skip

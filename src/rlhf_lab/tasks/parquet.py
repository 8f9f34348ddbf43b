"""Rows of a Parquet file, through pyarrow."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rlhf_lab.runs.reading import Unreadable, parsing
from rlhf_lab.tasks.extras import require_package
from rlhf_lab.tasks.tables import ColumnTable, RequiredFields, Row
from rlhf_lab.types.errors import UserError


def read_parquet(files: Sequence[Path], required: RequiredFields) -> ColumnTable:
    """All rows of a file or of several that follow each other; the columns that are wanted are in
    memory in Arrow's form, as large as their text."""
    path = files[0]
    require_file(path, required)
    import pyarrow

    try:
        with parsing(path, "Parquet file"):
            table = pyarrow.concat_tables([read_wanted(one, required) for one in files])
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

    source = str(path) if len(files) == 1 else re.sub(r"-\d{5}-of-", "-*-of-", str(path))
    return ColumnTable(source, names, scan, get, required)


def first_of_parquet(path: Path, required: RequiredFields) -> Row:
    """The first row of a file; {} of one without rows."""
    require_file(path, required)
    from pyarrow import parquet

    with parsing(f"{required.key}: {path}", "Parquet file"):
        first = next(parquet.ParquetFile(path).iter_batches(batch_size=1), None)
        row: Row = first.to_pylist()[0] if first is not None and len(first) else {}
    return row


def require_file(path: Path, required: RequiredFields) -> None:
    """Raises UserError without the file, or without the package that reads it."""
    if not path.is_file():
        raise required.no_such_file(path, "no such file")
    require_package("pyarrow", "hub", f"{required.key}={path}")


def read_wanted(path: Path, required: RequiredFields) -> Any:
    """The columns of a file that are wanted, as a table of Arrow."""
    import pyarrow
    from pyarrow import parquet

    schema = parquet.read_schema(path)
    wanted = [field.name for field in schema if required.wants(field.name, is_plain(field.type))]
    file = parquet.ParquetFile(path)
    if len(wanted) == len(schema) or not file.num_row_groups:
        return parquet.read_table(path)
    # Of a part of the columns a group of rows at a time is read, which needs half the memory.
    groups = range(file.num_row_groups)
    return pyarrow.concat_tables(file.read_row_group(group, columns=wanted) for group in groups)


def free_memory() -> None:
    """Give back what Arrow holds of tables that were freed, if it was used."""
    if "pyarrow" in sys.modules:
        sys.modules["pyarrow"].default_memory_pool().release_unused()


def is_plain(kind: Any) -> bool:
    """Whether Python can represent every value of a column's type."""
    from pyarrow import types

    return any(
        test(kind)
        for test in (types.is_integer, types.is_floating, types.is_boolean, types.is_string,
                     types.is_large_string, types.is_null)
    )  # fmt: skip

"""A user's Parquet file, through pyarrow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rlhf_lab.errors import UserError
from rlhf_lab.tasks.extras import require
from rlhf_lab.tasks.tables import Columns, Demand, NoSuchFile, Row


def read_parquet(path: Path, demand: Demand) -> Columns:
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
        table = pyarrow.parquet.read_table(path)
    except (OSError, pyarrow.ArrowException) as error:
        raise UserError(
            f"{demand.key}: {path} is not a Parquet file that can be read ({error}): write it "
            "anew, or pass JSONL"
        ) from error

    def scan(names: list[str]) -> Iterator[Row]:
        for batch in table.select(names).to_batches(max_chunksize=4096):
            yield from batch.to_pylist()

    def get(index: int) -> Row:
        row: Row = table.slice(index, 1).to_pylist()[0]
        return row

    return Columns(str(path), table.column_names, scan, get, demand)

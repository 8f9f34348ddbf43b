"""Store histories of runs as Parquet files, each under the stamp of the run's state."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlhf_lab.runs.atomic_folder import atomic_file
from rlhf_lab.runs.disk import refusing
from rlhf_lab.runs.reading import Unreadable, checked, parsing
from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.sources.record import Cell, Row, flat

STAMP = b"stamp"
# A name may have numbers in some rows and texts in others, a column may not.
NUMBERS, TEXTS = "n:", "t:"


@dataclass(frozen=True)
class Cache:
    """A folder of histories. A history is returned only for the stamp that it was stored with."""

    folder: Path

    def path(self, key: Sequence[str]) -> Path:
        """The file of a run. Names that are alike when made safe differ in their hash."""
        digest = hashlib.sha256(json.dumps(list(key)).encode()).hexdigest()[:8]
        safe = "-".join("".join(c if c.isalnum() else "_" for c in part) for part in key)
        return self.folder / f"{safe[:120]}-{digest}.parquet"

    def get(self, key: Sequence[str], stamp: str) -> list[Row] | None:
        """The flat rows that were kept under a stamp; None if there are none, or their file is
        damaged: they are fetched again then, and put in its place."""
        parquet = pyarrow_parquet()
        path = self.path(key)
        if not path.is_file():
            return None
        try:
            with parsing(path, "table of Parquet"):
                table = parquet.read_table(path, page_checksum_verification=True)
                kept, rows = table.schema.metadata or {}, table.to_pylist()
            if kept.get(STAMP) != stamp.encode():
                return None
            return [decode_row(row, path) for row in checked(rows, list[dict[str, Any]], path)]
        except Unreadable:
            return None

    def put(self, key: Sequence[str], stamp: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Keep rows in place of any older ones, in one step."""
        import pyarrow

        parquet = pyarrow_parquet()
        encoded = [encode_row(flat(row)) for row in rows]
        names = list(dict.fromkeys(name for row in encoded for name in row))
        columns = {name: one_type([row.get(name) for row in encoded]) for name in names}
        # A table without columns would lose how many rows it has.
        table = pyarrow.table({"row": list(range(len(encoded))), **columns})
        table = table.replace_schema_metadata({STAMP: stamp.encode()})
        with refusing(f"--cache {self.folder}"):
            self.folder.mkdir(parents=True, exist_ok=True)
            with atomic_file(self.path(key)) as draft:
                parquet.write_table(table, draft, write_page_checksum=True)


def pyarrow_parquet() -> Any:
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise UserError("--cache needs the package pyarrow: pip install pyarrow") from error
    return parquet


def one_type(values: Sequence[Cell | None]) -> list[Any]:
    """A column of one type: whole numbers among others as those."""
    if any(isinstance(value, float) for value in values):
        return [float(value) if isinstance(value, int) else value for value in values]
    return list(values)


def encode_row(row: Row) -> dict[str, Cell]:
    return {f"{TEXTS if isinstance(v, str) else NUMBERS}{name}": v for name, v in row.items()}


def decode_row(row: Mapping[str, Any], path: Path) -> Row:
    """The row as it was; null is where it had nothing, NaN where it had NaN. Raises Unreadable."""
    prefixed = {name: value for name, value in row.items() if name != "row" and value is not None}
    for name, value in prefixed.items():
        kind = {NUMBERS: int | float, TEXTS: str}.get(name[: len(NUMBERS)])
        if kind is None or not isinstance(value, kind):
            raise Unreadable(path, "it is no history that was kept here", f"column {name[:40]}")
    return {name[len(NUMBERS) :]: value for name, value in prefixed.items()}

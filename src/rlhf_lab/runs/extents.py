"""The rows that a checkpoint counts on: how many each record file had, and their digest.

A run's record is its product. A run goes on only from a record that is complete to the row, so that
no gap is hidden behind later rows.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rlhf_lab.types.errors import UserError

BLOCK_BYTES = 2**20


@dataclass(frozen=True)
class Extent:
    """The first part of a file of rows. sha256: of its bytes, in hex."""

    rows: int
    size: int
    sha256: str


EMPTY = Extent(0, 0, hashlib.sha256().hexdigest())


class GrowingFile:
    """The extent of a file that rows are appended to; each call reads only what is new."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rows = 0
        self._size = 0
        self._sum = hashlib.sha256()

    def extent(self, limit: int | None = None) -> Extent:
        """The extent of the file, or of at most its first `limit` bytes; of a missing one 0."""
        if self._path.is_file():
            with self._path.open("rb") as file:
                file.seek(self._size)
                while data := file.read(self._left(limit)):
                    self._rows += data.count(b"\n")
                    self._size += len(data)
                    self._sum.update(data)
        return Extent(self._rows, self._size, self._sum.hexdigest())

    def _left(self, limit: int | None) -> int:
        return BLOCK_BYTES if limit is None else min(BLOCK_BYTES, limit - self._size)


def extent_of(path: Path, limit: int | None = None) -> Extent:
    """The extent of a file, or of its first bytes."""
    return GrowingFile(path).extent(limit)


def require_rows(path: Path, wanted: Extent, checkpoint: Path) -> None:
    """Refuse a record file that lacks rows which a checkpoint counts on, or holds others."""
    there = extent_of(path, wanted.size)
    if there == wanted:
        return
    raise UserError(
        f"{path} is not complete: {lack(there, wanted)} that the checkpoint of round "
        f"{int(checkpoint.name)} "
        f"counts on; restore the file, or delete {checkpoint} to go on from the one before it, or "
        "else from the beginning"
    )


def lack(there: Extent, wanted: Extent) -> str:
    """What is wrong with the rows that are there, in words."""
    if there.rows < wanted.rows:
        return f"it has {there.rows} of the {wanted.rows} rows"
    return f"its first {wanted.rows} rows are not those"


def cut_to(path: Path, wanted: Extent) -> None:
    """Remove the rows that were written after a checkpoint."""
    if path.is_file() and path.stat().st_size > wanted.size:
        os.truncate(path, wanted.size)


def cut_all(folder: Path, wanted: Mapping[str, Extent], checkpoint: Path) -> None:
    """Require the rows of every file of a run, then remove the later ones."""
    for name, extent in wanted.items():
        require_rows(folder / name, extent, checkpoint)
    for name, extent in wanted.items():
        cut_to(folder / name, extent)

"""Extents of files: number of rows, bytes and digest of what was written.

A run is resumed only if no row from before the checkpoint is missing, so that later rows hide no
gap.
"""

from __future__ import annotations

import hashlib
import math
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


class RunningExtent:
    """The extent of bytes that are added part by part."""

    def __init__(self) -> None:
        self._rows = 0
        self._size = 0
        self._sum = hashlib.sha256()

    def add(self, data: bytes) -> None:
        self._rows += data.count(b"\n")
        self._size += len(data)
        self._sum.update(data)

    @property
    def size(self) -> int:
        return self._size

    def extent(self) -> Extent:
        return Extent(self._rows, self._size, self._sum.hexdigest())


def running_extent(path: Path, limit: int | None = None) -> RunningExtent:
    """That of a file, or of its first `limit` bytes; of no bytes if there is no file."""
    found = RunningExtent()
    if path.is_file():
        end = math.inf if limit is None else limit
        with path.open("rb") as file:
            while data := file.read(int(min(BLOCK_BYTES, end - found.size))):
                found.add(data)
    return found


def extent_of(path: Path, limit: int | None = None) -> Extent:
    return running_extent(path, limit).extent()


def require_rows(path: Path, expected: Extent, checkpoint: Path) -> None:
    """Refuse a file that does not begin with the rows that it had at a checkpoint."""
    actual = extent_of(path, expected.size)
    if actual == expected:
        return
    raise UserError(
        f"{path} is not complete: {difference(actual, expected)} that the checkpoint of "
        f"round {int(checkpoint.name)} counts on; restore the file, or delete {checkpoint} to "
        "go on from the one before it, or else from the beginning"
    )


def difference(actual: Extent, expected: Extent) -> str:
    if actual.rows < expected.rows:
        return f"it has {actual.rows} of the {expected.rows} rows"
    return f"its first {expected.rows} rows are not those"


def cut_all(folder: Path, extents: Mapping[str, Extent], checkpoint: Path) -> None:
    """Require the rows of every file of a run, then remove the later ones."""
    for name, extent in extents.items():
        require_rows(folder / name, extent, checkpoint)
    for name, extent in extents.items():
        path = folder / name
        if path.is_file() and path.stat().st_size > extent.size:
            os.truncate(path, extent.size)

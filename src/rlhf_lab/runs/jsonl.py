"""JSONL files: rows appended at once, or written in one step, and read where a killed process may
have cut the last line.
"""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from io import FileIO
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from rlhf_lab.runs import metric_names
from rlhf_lab.runs.disk import atomic_write
from rlhf_lab.runs.reading import Unreadable, adapter_of, checked, content, parse_json
from rlhf_lab.runs.row_digests import Extent, extent_of, running_extent
from rlhf_lab.runs.schema import RolloutSample, Scheduled, Timed, row_type
from rlhf_lab.runs.trackers.options import Tracker
from rlhf_lab.types.data import Metrics

# A run of a million rounds has files of some GiB.
ROWS_BYTES = 64 * 2**30
EVALUATION = metric_names.row_type(metric_names.EVALUATION)
# Types of the rows of a run's files, by the files' names.
KINDS: Mapping[str, Any] = {
    "metrics.jsonl": metric_names.row_type(metric_names.ROUND),
    "evals.jsonl": EVALUATION,
    "evals-*.jsonl": EVALUATION,
    "validation.jsonl": EVALUATION,
    "schedule.jsonl": Scheduled,
    "timeline.jsonl": Timed,
    "rollouts.jsonl": row_type(RolloutSample),
}


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    atomic_write(path, "".join(json.dumps(row) + "\n" for row in rows))


class Rows(list[dict[str, Any]]):
    """Rows of a JSONL file; `is_cut` says that a last, incomplete line was left out."""

    is_cut = False


def read_rows(path: Path) -> Rows:
    """Rows of a JSONL file, none if there is no file; those of a run's file have their types. Only
    the last line may be incomplete: its writer was killed. Raises Unreadable at another line that
    is no such row."""
    rows = Rows()
    # A link to nowhere is damage, and no missing file.
    if not os.path.lexists(path):
        return rows
    data = content(path, ROWS_BYTES)
    lines = data.splitlines()
    for number, line in enumerate(lines, start=1):
        try:
            rows.append(parse_json(line, dict[str, Any], path))
        except Unreadable as error:
            if number == len(lines) and not data.endswith(b"\n"):
                rows.is_cut = True
                break
            raise with_remedy(error, number) from error
    for name, kind in KINDS.items():
        if fnmatchcase(path.name, name):
            check_rows(rows, kind, path)
    return rows


def check_rows(rows: Rows, kind: Any, path: Path) -> None:
    """Raise Unreadable at the first row that is not of `kind`. The rows stay as they are: a file
    that is written again keeps its bytes."""
    try:
        adapter_of(list[kind]).validate_python(rows, strict=True)
    except ValidationError:
        # All at once is faster; one by one names the line.
        for number, row in enumerate(rows, start=1):
            try:
                checked(row, kind, path)
            except Unreadable as error:
                raise with_remedy(error, number) from error


def with_remedy(error: Unreadable, number: int) -> Unreadable:
    """The error of a line, with its number and what to do. A schedule needs all of its lines."""
    is_needed = error.path.name == "schedule.jsonl"
    remedy = "restore the file" if is_needed else "delete the line to read the others"
    place = f"line {number} {error.place}".rstrip()
    return Unreadable(error.path, f"{error.reason}: {remedy}", place)


class JsonlFile:
    """Appends rows, each written out at once: a kill loses none, a full disk leaves no half.

    `extent` is what the file had when it was opened and what was appended since, whatever lies at
    its path. `change` is what another process did to the file, "" if nothing, as the last row
    found it. From then on rows go to `place`: NAME.own, behind a copy of the rows before, or the
    path itself where these are lost.
    """

    def __init__(self, path: Path) -> None:
        self.path = self.place = path
        self.change = ""
        self._file: FileIO | None = None

    def open(self) -> FileIO:
        """The file, opened and created if need be."""
        if self._file is None:
            self._file = self.path.open("a+b", buffering=0)
            self._written = running_extent(self.path)
        return self._file

    def append(self, *rows: Mapping[str, Any]) -> None:
        """Write rows at once. An OSError names the file, which then ends with the row before."""
        text = "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows)
        self.open()
        self.check()
        file, data = self.open(), text.encode()
        start, rest = file.seek(0, os.SEEK_END), memoryview(data)
        try:
            while rest:
                rest = rest[file.write(rest) :]
        except OSError as error:
            file.truncate(start)
            error.add_note(f"{self.place} ends with the row before; free space and resume")
            raise
        self._written.add(data)

    def check(self) -> None:
        """Compare the file at the path with the open one, by inode and size."""
        if self._file is None or self.change:
            return
        if change := difference_on_disk(self._file, self.path, self.size):
            self.change = change
            self._step_aside()

    def _step_aside(self) -> None:
        """Go on in NAME.own if what was written is there still."""
        own, aside = self.open(), self.path.with_name(f"{self.path.name}.own")
        own.seek(0)
        with aside.open("wb") as copy:
            shutil.copyfileobj(own, copy)
            copy.truncate(self.size)
        if extent_of(aside) != self.extent():
            aside.unlink()
            return
        own.close()
        self._file, self.place = aside.open("ab", buffering=0), aside

    @property
    def size(self) -> int:
        return self._written.size

    def extent(self) -> Extent:
        """Of all that was written; of a file that is not open, of what it has."""
        return extent_of(self.path) if self._file is None else self._written.extent()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def difference_on_disk(file: FileIO, path: Path, size: int) -> str:
    """What another process did to the file at a path, which is open here and has `size` bytes."""
    own = os.fstat(file.fileno())
    try:
        there = path.stat()
    except FileNotFoundError:
        return "was removed"
    if not os.path.samestat(own, there):
        return "was replaced by another file"
    if own.st_size < size:
        return f"was cut to {own.st_size} of {size} bytes"
    return f"has {own.st_size - size} bytes of another process" if own.st_size > size else ""


class JsonlTracker(Tracker):
    """Appends `{"step": step, **metrics}` per row.

    A NaN or infinite number is a ValueError that names it, and its row is not written.
    """

    def __init__(self, file: JsonlFile) -> None:
        self._file = file
        file.open()

    def log(self, metrics: Metrics, step: int) -> None:
        for name, value in leaves(metrics):
            if isinstance(value, float) and not math.isfinite(value):
                raise ValueError(f"metric {name} of step {step} is {value}, not a finite number")
        self._file.append({"step": step} | metrics)

    def close(self) -> None:
        self._file.close()


def leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Every value of nested mappings and sequences, with the path to it."""
    # Nearly every value, and far cheaper to find than that it is no Mapping.
    if isinstance(value, float | int | str):
        yield name, value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from leaves(inner, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            yield from leaves(inner, f"{name}[{index}]")
    else:
        yield name, value

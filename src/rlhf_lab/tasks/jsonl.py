"""Rows of a JSONL file; errors name the file, the line and the remedy."""

from __future__ import annotations

from array import array
from codecs import BOM_UTF8
from pathlib import Path
from typing import Any

from rlhf_lab.runs.reading import Unreadable, file_size, parse_json
from rlhf_lab.tasks.tables import RequiredFields, Row, Table
from rlhf_lab.types.errors import UserError


class JsonLines(Table):
    """Rows of a file, of which only the offsets of its lines are in memory.

    Every line is checked when the file is opened, so that a bad one is refused before the first
    step, and again when it is read. Blank lines are skipped.
    """

    def __init__(self, path: Path, required: RequiredFields) -> None:
        self.source = str(path)
        self._path = path
        self._required = required
        self._offsets = array("Q")
        self._numbers = array("Q")
        offset = 0
        try:
            file_size(path)
            with path.open("rb") as file:
                for number, line in enumerate(file, start=1):
                    if line.strip():
                        self._offsets.append(offset)
                        self._numbers.append(number)
                        self._read(line, len(self) - 1)
                    offset += len(line)
        except (OSError, Unreadable) as error:
            reason = error.strerror if isinstance(error, OSError) else error.reason
            raise required.no_such_file(path, str(reason)) from error
        if not self._offsets:
            raise UserError(f"{required.key}: {path} is empty: it must hold one JSON object a line")

    def __len__(self) -> int:
        return len(self._offsets)

    def __getitem__(self, index: int) -> Row:  # type: ignore[override]
        position = range(len(self))[index]
        with self._path.open("rb") as file:
            file.seek(self._offsets[position])
            return self._read(file.readline(), position)

    def number(self, index: int) -> int:
        return self._numbers[index]

    def row_name(self, index: int) -> str:
        return f"{self._required.key}: {self.source}, line {self.number(index)}"

    def _read(self, line: bytes, index: int) -> Row:
        name = self.row_name(index)
        return self._required.check(parse_row(line, name), name)


def first_line(path: Path, required: RequiredFields) -> Row:
    """The row of the first line that is not blank; {} of a file without one."""
    try:
        file_size(path)
        with path.open("rb") as file:
            found = ((number, line) for number, line in enumerate(file, 1) if line.strip())
            number, line = next(found, (1, b"{}"))
    except (OSError, Unreadable) as error:
        reason = error.strerror if isinstance(error, OSError) else error.reason
        raise required.no_such_file(path, str(reason)) from error
    return parse_row(line, f"{required.key}: {path}, line {number}")


def parse_row(line: bytes, row_name: str) -> Row:
    """The JSON object on a line. Raises UserError if there is none."""
    text = line.removeprefix(BOM_UTF8)
    try:
        text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{row_name} is not valid UTF-8 (byte {error.start + 1}): convert the file to UTF-8"
        ) from error
    try:
        row: Row | Any = parse_json(text, Any, row_name)
    except Unreadable as error:
        reason = error.reason.removeprefix("it is ")
        raise UserError(f"{row_name} is {reason}: write one object a line") from error
    if not isinstance(row, dict):
        raise UserError(f"{row_name} is not a JSON object: write fields and values in braces")
    return row

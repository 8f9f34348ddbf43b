"""A user's JSONL: whatever is wrong is refused with the file, the line and the remedy."""

from __future__ import annotations

from array import array
from codecs import BOM_UTF8
from pathlib import Path
from typing import Any

from rlhf_lab.runs.reading import Unreadable, file_size, parse_json
from rlhf_lab.tasks.tables import NoSuchFile, RequiredFields, Row, Table
from rlhf_lab.types.errors import UserError


class JsonLines(Table):
    """Rows of a file, of which only the places of its lines are held.

    Every line is checked when the file is opened, so that a bad one is refused before the first
    step, and again when it is read. Blank lines are no rows.
    """

    def __init__(self, path: Path, demand: RequiredFields) -> None:
        self.source = str(path)
        self._path = path
        self._demand = demand
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
            raise NoSuchFile(
                f"{demand.key}: {path} cannot be read ({reason}): pass {demand.key}=<where the "
                "rows are>"
            ) from error
        if not self._offsets:
            raise UserError(f"{demand.key}: {path} is empty: it must hold one JSON object a line")

    def __len__(self) -> int:
        return len(self._offsets)

    def __getitem__(self, index: int) -> Row:  # type: ignore[override]
        place = range(len(self))[index]
        with self._path.open("rb") as file:
            file.seek(self._offsets[place])
            return self._read(file.readline(), place)

    def number(self, index: int) -> int:
        """The line, counted from 1 as editors do."""
        return self._numbers[index]

    def place(self, index: int) -> str:
        """How a message names a row."""
        return f"{self._demand.key}: {self.source}, line {self.number(index)}"

    def _read(self, line: bytes, index: int) -> Row:
        return self._demand.check(parsed(line, self.place(index)), self.place(index))


def parsed(line: bytes, place: str) -> Row:
    """The object on a line, or the reason why there is none."""
    text = line.removeprefix(BOM_UTF8)
    try:
        text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{place} is not valid UTF-8 (byte {error.start + 1}): convert the file to UTF-8"
        ) from error
    try:
        row: Row | Any = parse_json(text, Any, place)
    except Unreadable as error:
        reason = error.reason.removeprefix("it is ")
        raise UserError(f"{place} is {reason}: write one object a line") from error
    if not isinstance(row, dict):
        raise UserError(f"{place} is not a JSON object: write fields and values in braces")
    return row

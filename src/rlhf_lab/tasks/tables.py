"""Rows of a task's data, held as bytes or columns and made into objects when they are asked for."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rlhf_lab.runs.reading import parsing
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import Example

Row = dict[str, Any]


class NoSuchFile(UserError):
    """The rows are not where the option says."""


@dataclass(frozen=True)
class RequiredFields:
    """What every row must have. text: fields of type text; filled: those not blank either;
    columns: fields of another type, which a table of columns must have.

    key: the option that named the source. remedy: what to do about a field that is not there.
    """

    text: tuple[str, ...]
    filled: tuple[str, ...] = ()
    key: str = "task.path"
    remedy: str = "add it, or name the column that holds it in the task's options"
    columns: tuple[str, ...] = ()

    def check(self, row: Row, place: str) -> Row:
        """The row itself, or the reason why it cannot be used."""
        for field in self.text:
            if not isinstance(row.get(field), str):
                problem = "no text in" if field in row else "no"
                raise UserError(
                    f"{place} has {problem} field {field!r} (fields found: "
                    f"{', '.join(sorted(row))}): {self.remedy}"
                )
        for field in self.filled:
            if not row[field].strip():
                raise UserError(
                    f"{place} has an empty field {field!r}: write the text, or delete the row"
                )
        return row


class Table(Sequence[Row]):
    """Checked rows. source: what they were read from; number(i) is what a user calls row i."""

    source: str

    @abstractmethod
    def number(self, index: int) -> int: ...

    @abstractmethod
    def place(self, index: int) -> str: ...


class ColumnTable(Table):
    """A table of columns: of a Parquet file, or of a hub dataset."""

    def __init__(
        self,
        source: str,
        names: Sequence[str],
        scan: Callable[[list[str]], Iterable[Row]],
        get: Callable[[int], Row],
        demand: RequiredFields,
    ) -> None:
        """Check the columns, then every row once. scan: all rows, with these columns alone."""
        self.source = source
        self._get = get
        self._demand = demand
        needed = list(dict.fromkeys((*demand.text, *demand.columns)))
        missing = [name for name in needed if name not in names]
        if missing:
            raise UserError(
                f"{demand.key}: {source} lacks the column {', '.join(missing)} (columns found: "
                f"{', '.join(sorted(names)) or 'none'}): {demand.remedy}"
            )
        self._size = 0
        rows = iter(scan(needed))
        while (row := self._converted(lambda: next(rows, None), self._size)) is not None:
            demand.check(row, self.place(self._size))
            self._size += 1
        if not self._size:
            raise UserError(f"{demand.key}: {source} has no rows: it must hold one or more")

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: int) -> Row:  # type: ignore[override]
        place = range(self._size)[index]
        row = self._converted(lambda: self._get(place), place)
        assert row is not None, "a row of the table"
        return row

    def _converted(self, read: Callable[[], Row | None], index: int) -> Row | None:
        """What another package makes of a row, or of one behind the last: it may hold a text or a
        time that Python has none of."""
        with parsing(f"{self._demand.key}: {self.source}", "table", f"row {self.number(index)}"):
            return read()

    def number(self, index: int) -> int:
        """Rows count from 1."""
        return index + 1

    def place(self, index: int) -> str:
        """How a message names a row."""
        return f"{self._demand.key}: {self.source}, row {self.number(index)}"


class TableExamples(Sequence[Example]):
    """The rows of a table from `first` up to `last`, made into examples one at a time.

    split_file: the name without suffix under which a task reads these rows from a folder.
    """

    def __init__(
        self,
        table: Table,
        split_file: str,
        make: Callable[[Row, str], Example],
        first: int = 0,
        last: int | None = None,
    ) -> None:
        self.table = table
        self.split_file = split_file
        self._make = make
        self._range = range(len(table))[first:last]

    def __len__(self) -> int:
        return len(self._range)

    def __getitem__(self, index: int) -> Example:  # type: ignore[override]
        place = self._range[index]
        return self._make(self.table[place], f"{self.table.source}:{self.table.number(place)}")

    def row(self, index: int) -> Row:
        """The row as it stands in the table."""
        return self.table[self._range[index]]

    def number(self, index: int) -> int:
        """What a user calls the row."""
        return self.table.number(self._range[index])

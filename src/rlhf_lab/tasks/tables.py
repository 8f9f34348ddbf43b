"""Rows of JSONL and Parquet files: checked once, held as bytes or columns, converted when read."""

from __future__ import annotations

import re
import sys
from abc import abstractmethod
from array import array
from codecs import BOM_UTF8
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rlhf_lab.runs.reading import Unreadable, file_size, parse_json, parsing
from rlhf_lab.tasks.examples import Examples
from rlhf_lab.tasks.optional_packages import require_package
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import Example, Split

Row = dict[str, Any]
# From a row and its uid. Raises UserError for a row that cannot be used.
MakeExample = Callable[[Row, str], Example]


class NoSuchFile(UserError):
    """The option names no file that can be read."""


def every_column(name: str, is_plain: bool) -> bool:
    """Every column is read."""
    return True


@dataclass(frozen=True)
class RequiredFields:
    """The fields that every row must have. text: those of type text; filled: those that must not be
    blank; columns: those of another type, which a table of columns must have.

    key: the option that names the source. remedy: ends the message about a missing field. wants:
    which columns of a table of columns are read, by name and by whether they hold plain values.
    """

    text: tuple[str, ...]
    filled: tuple[str, ...] = ()
    key: str = "task.path"
    remedy: str = "add it, or name the column that holds it in the task's options"
    columns: tuple[str, ...] = ()
    wants: Callable[[str, bool], bool] = every_column

    def no_such_file(self, path: Path, reason: str) -> NoSuchFile:
        """The error of a source that cannot be read."""
        return NoSuchFile(
            f"{self.key}: {path} cannot be read ({reason}): pass {self.key}=<where the rows are>"
        )

    def check(self, row: Row, row_name: str) -> Row:
        """The row itself. Raises UserError if a field is missing or blank."""
        for field in self.text:
            if not isinstance(row.get(field), str):
                problem = "no text in" if field in row else "no"
                raise UserError(
                    f"{row_name} has {problem} field {field!r} (fields found: "
                    f"{', '.join(sorted(row))}): {self.remedy}"
                )
        for field in self.filled:
            if not row[field].strip():
                raise UserError(
                    f"{row_name} has an empty field {field!r}: write the text, or delete the row"
                )
        return row


class Table(Sequence[Row]):
    """Checked rows. source: where they were read from."""

    source: str

    @abstractmethod
    def number(self, index: int) -> int:
        """The number of a row as editors show it, from 1."""

    @abstractmethod
    def row_name(self, index: int) -> str:
        """A row's name in error messages."""

    def uid(self, index: int) -> str:
        """A row's name in run folders."""
        return f"{self.source}:{self.number(index)}"


class ColumnTable(Table):
    """The columns of a Parquet file or of a hub dataset."""

    def __init__(
        self,
        source: str,
        names: Sequence[str],
        scan: Callable[[list[str]], Iterable[Row]],
        get: Callable[[int], Row],
        required: RequiredFields,
    ) -> None:
        """Check the columns, then every row once. scan: all rows, with these columns alone."""
        self.source = source
        self._get = get
        self._required = required
        needed = list(dict.fromkeys((*required.text, *required.columns)))
        missing = [name for name in needed if name not in names]
        if missing:
            raise UserError(
                f"{required.key}: {source} lacks the column {', '.join(missing)} (columns found: "
                f"{', '.join(sorted(names)) or 'none'}): {required.remedy}"
            )
        self._size = 0
        rows = iter(scan(needed))
        while (row := self._converted(lambda: next(rows, None), self._size)) is not None:
            required.check(row, self.row_name(self._size))
            self._size += 1
        if not self._size:
            raise UserError(f"{required.key}: {source} has no rows: it must hold one or more")

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: int) -> Row:  # type: ignore[override]
        position = range(self._size)[index]
        row = self._converted(lambda: self._get(position), position)
        assert row is not None, "a row of the table"
        return row

    def _converted(self, read: Callable[[], Row | None], index: int) -> Row | None:
        """A row from another package, or None after the last. Raises Unreadable for a text or
        time that Python cannot represent."""
        with parsing(f"{self._required.key}: {self.source}", "table", f"row {self.number(index)}"):
            return read()

    def number(self, index: int) -> int:
        return index + 1

    def row_name(self, index: int) -> str:
        return f"{self._required.key}: {self.source}, row {self.number(index)}"


class TableExamples(Examples):
    """The rows of a table from `first` up to `last`, or those of the numbers `rows`, converted to
    examples when they are read.

    split_file: the name, without suffix, of the file in a folder that holds these rows. columns:
    those that examples keep; None for all.
    """

    def __init__(
        self,
        table: Table,
        split_file: str,
        make: MakeExample,
        first: int = 0,
        last: int | None = None,
        rows: Sequence[int] | None = None,
        columns: Collection[str] | None = (),
    ) -> None:
        self.table = table
        self.split_file = split_file
        self._columns = columns
        self._make = make
        self._rows = range(len(table))[first:last] if rows is None else rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> Example:  # type: ignore[override]
        position = self._rows[index]
        row = self.table[position]
        example = self._make(row, self.table.uid(position))
        if self._columns == ():
            return example
        names = row if self._columns is None else self._columns
        return replace(example, columns={name: row[name] for name in names if name in row})

    def keeping(self, columns: Collection[str] | None) -> TableExamples:
        """The same rows, whose examples have these columns; None for all."""
        return TableExamples(
            self.table, self.split_file, self._make, rows=self._rows, columns=columns
        )

    def row(self, index: int) -> Row:
        return self.table[self._rows[index]]

    def row_name(self, index: int) -> str:
        return f"{Path(self.table.source).name}:{self.table.number(self._rows[index])}"


def check_rows(table: Table, make: MakeExample) -> Table:
    """The table, with every row converted once so that bad ones are refused."""
    for index, row in enumerate(table):
        make(row, table.uid(index))
    return table


def split_examples(
    split: Split, load: Callable[[str], Table], make: MakeExample, validation_size: int, path: str
) -> TableExamples:
    """A split of data without a validation file: validation is the end of the train rows.

    load: reads the table `train` or `test`.
    """
    if split is Split.test:
        return TableExamples(load("test"), "test", make)
    table = load("train")
    num_train = len(table) - validation_size
    if num_train < 1:
        raise UserError(
            f"task.validation_size={validation_size}, but {path} has only {len(table)} training "
            "rows: lower it"
        )
    if split is Split.train:
        return TableExamples(table, "train", make, last=num_train)
    return TableExamples(table, "train", make, first=num_train)


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

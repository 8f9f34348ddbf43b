"""Sets of preference pairs: files, folders and hub datasets, read a row at a time."""

from __future__ import annotations

import functools
import hashlib
import json
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rlhf_lab.tasks.hub import (
    OTHER_FORMATS,
    SUFFIXES,
    hub_splits,
    is_folder,
    read_split,
    split_names,
)
from rlhf_lab.tasks.pairs import ADD, HELD_OUT, KEY, PairColumns, is_tie, pair_example
from rlhf_lab.tasks.tables import NoSuchFile, RequiredFields, Row, Table, free_memory
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import Example

# Of each file: name, time of change, size.
State = tuple[tuple[str, int, int], ...]
TRAIN = "train"
# Names of the same splits in published sets; with others they are named by an option.
TRAIN_NAMES = (TRAIN, "train_prefs")
HELD_OUT_NAMES = (HELD_OUT, "validation", "test", "test_prefs")


class PairRows(Sequence[Row]):
    """The pairs of a table in one form, each made when it is needed. Ties are left out.

    numbers: of the table's rows that are pairs. num_ties: how many were left out.
    """

    def __init__(
        self, table: Table, columns: PairColumns, numbers: Sequence[int], num_ties: int
    ) -> None:
        self.table = table
        self.num_ties = num_ties
        self._columns = columns
        self._numbers = numbers

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, index: int) -> Row:  # type: ignore[override]
        number = self._numbers[index]
        return self._columns.row(self.table[number], self.table.row_name(number))

    def part(self, first: int, last: int, num_ties: int = 0) -> PairRows:
        """The pairs from first up to last, with so many of the ties."""
        return PairRows(self.table, self._columns, self._numbers[first:last], num_ties)

    def example(self, index: int) -> Example:
        """The example of a pair, which is named after its file and line."""
        number = self._numbers[index]
        uid = f"{Path(self.table.source).name}:{self.table.number(number)}"
        return pair_example(self[index], self.table.row_name(number), uid)


class PairExamples(Sequence[Example]):
    """The examples of pairs."""

    def __init__(self, rows: PairRows) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Example:  # type: ignore[override]
        return self.rows.example(index)


@dataclass(frozen=True)
class GivenPairs:
    """A user's pairs, and how many there are of them to learn from and to judge by."""

    train: PairRows
    held_out: PairRows

    def parts(self) -> list[tuple[str, PairRows]]:
        """(name of the file, rows)."""
        return [(TRAIN, self.train), (HELD_OUT, self.held_out)]

    @functools.cached_property
    def digest(self) -> str:
        """The `hash_of` all rows, which are not in memory at once."""
        found = hashlib.sha256()

        def add(text: str) -> None:
            found.update(text.encode())

        add('{"parts":[')
        for place, (name, rows) in enumerate(self.parts()):
            add(f'{"," if place else ""}["{name}",[')
            for index in range(len(rows)):
                text = json.dumps(rows[index], sort_keys=True, separators=(",", ":"))
                add(f"{',' if index else ''}{text}")
            add("]]")
        add("]}")
        return found.hexdigest()[:16]


def pair_examples(
    path: str | Path, key: str = KEY, columns: PairColumns | None = None
) -> PairExamples:
    """The examples of the pairs to learn from: of a file, or of the train part of a folder or hub
    dataset. key: the option that names the path."""
    columns = columns or PairColumns()
    part, _ = part_names(str(path), key, columns)
    return PairExamples(rows_of(str(path), part, key, columns))


def given_pairs(
    path: str, held_out_pairs: int, key: str, columns: PairColumns | None = None
) -> GivenPairs:
    """The pairs of a folder or hub dataset with both parts, or of a file or a single part whose end
    is held out.

    key: the option that names the path. Raises UserError for rows that hold no preference.
    """
    if not path:
        raise UserError(
            f"{key}='': pass {key}=<JSON lines with prompt, chosen and rejected, or a hub dataset>"
        )
    columns = columns or PairColumns()
    train, held_out = part_names(path, key, columns)
    rows = rows_of(path, train, key, columns)
    if held_out:
        return GivenPairs(rows, rows_of(path, held_out, key, columns))
    if len(rows) <= held_out_pairs:
        raise UserError(
            f"labels.held_out_pairs={held_out_pairs}, but {path} has only {len(rows)} pairs: "
            "lower it"
        )
    num = len(rows) - held_out_pairs
    return GivenPairs(rows.part(0, num, rows.num_ties), rows.part(num, len(rows)))


def part_names(path: str, key: str, columns: PairColumns) -> tuple[str, str]:
    """The names of the files or hub splits of both parts, '' for the held-out one if there is none;
    both '' for a file."""
    required = RequiredFields((), key=key)
    place = Path(path)
    if is_folder(path, required):
        names = split_names(place)
        if not names & {*TRAIN_NAMES}:
            raise NoSuchFile(
                f"{key}={path} has no {TRAIN}.jsonl: pass a folder with {TRAIN}.jsonl and if "
                f"wanted {HELD_OUT}.jsonl, or .parquet, or one file"
            )
    elif place.is_file() or place.suffix in SUFFIXES or place.suffix in OTHER_FORMATS:
        return "", ""
    else:
        names = hub_splits(path, RequiredFields(columns.names, key=key))
    train = next((name for name in TRAIN_NAMES if name in names), TRAIN)
    if columns.held_out != HELD_OUT:
        return train, columns.held_out
    return train, next((name for name in HELD_OUT_NAMES if name in names), "")


def digest_of(path: str, held_out_pairs: int, key: str, columns: PairColumns) -> str:
    """The digest of `given_pairs`; of files that stay as they are it is kept without their rows."""
    return kept_digest(path, held_out_pairs, key, columns, state_of(path))


@functools.lru_cache(maxsize=16)
def kept_digest(
    path: str, held_out_pairs: int, key: str, columns: PairColumns, state: State
) -> str:
    return given_pairs(path, held_out_pairs, key, columns).digest


def state_of(path: str) -> State:
    """Name, time and size of each local file of a set."""
    place = Path(path)
    found = [place, *(one for name in (".", "data") for one in sorted((place / name).glob("*")))]
    files = [(one, one.stat()) for one in found if one.is_file()]
    return tuple((str(one), status.st_mtime_ns, status.st_size) for one, status in files)


def rows_of(path: str, part: str, key: str, columns: PairColumns) -> PairRows:
    """The checked pairs of a part. part: name of the file in a folder, or of the split on the hub.

    A file that stays as it is, is read once, until `forget_rows`.
    """
    return checked_rows(path, part, key, columns, state_of(path))


def forget_rows() -> None:
    """Free the columns of Parquet files, once all that is needed of them is written elsewhere."""
    checked_rows.cache_clear()
    free_memory()


@functools.lru_cache(maxsize=4)
def checked_rows(path: str, part: str, key: str, columns: PairColumns, state: State) -> PairRows:
    required = RequiredFields((), columns=columns.names, key=key, remedy=ADD, wants=columns.wants)
    table = read_split(path, part, {"split": part}, required)
    numbers, num_ties = array("Q"), 0
    for number in range(len(table)):
        name = table.row_name(number)
        row = columns.row(table[number], name)
        pair_example(row, name, "")
        if is_tie(row):
            num_ties += 1
        else:
            numbers.append(number)
    if not numbers:
        raise UserError(
            f"{key}: {path}: all {num_ties} rows have equal answers on both sides, in which no "
            "preference is: correct the columns chosen and rejected"
        )
    return PairRows(table, columns, numbers, num_ties)

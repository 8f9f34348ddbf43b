"""Which rows of one table belong to which split: by a hash of the prompt, or by a column."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rlhf_lab.tasks.prompt_columns import Columns, field_of
from rlhf_lab.tasks.tables import Table
from rlhf_lab.types.randomness import stable_hash
from rlhf_lab.types.samples import Split


@dataclass(frozen=True)
class Naming:
    """The names of the splits in the data."""

    train: str
    validation: str
    test: str

    def of(self, split: Split) -> str:
        name: str = getattr(self, split.value)
        return name


@dataclass(frozen=True)
class Hashing:
    """The shares of the rows that are held out. seed: keys the hash."""

    validation_share: float
    test_share: float
    seed: int = 0

    def split_of(self, prompt: str) -> Split:
        """The split of a prompt: a function of its text alone. A larger share takes rows from train
        and never moves any between validation and test."""
        place = stable_hash(self.seed, "split of a prompt", prompt) / 2**64
        if place < self.test_share:
            return Split.test
        # Validation is at the other end, so that its rows do not depend on test_share.
        return Split.validation if place >= 1 - self.validation_share else Split.train


@dataclass(frozen=True)
class Rows:
    """The numbers of each split's rows in a table. values: of the column that decides, if one does,
    with their counts."""

    source: str
    by_split: Mapping[Split, Sequence[int]]
    share: Mapping[Split, float]
    column: str = ""
    naming: Naming | None = None
    values: Mapping[str, int] | None = None

    def why_empty(self, split: Split) -> str:
        """What to do about a split without rows."""
        if self.naming is None:
            num = sum(len(rows) for rows in self.by_split.values())
            return (
                f"task.{split.value}_share={self.share[split]} puts none of the {num} rows of "
                f"{self.source} into {split.value}: raise it"
            )
        values = ", ".join(repr(value) for value in sorted(self.values or ()))
        return (
            f"task.{split.value}_split={self.naming.of(split)}: column {self.column!r} of "
            f"{self.source} has it in no row (values found: {values}): name one of them"
        )

    def notes(self) -> list[str]:
        """Values of the column that name no split."""
        known = {self.naming.of(split) for split in Split} if self.naming else set()
        return [
            f"{count:,} rows with {self.column}={value} are in no split"
            for value, count in sorted((self.values or {}).items())
            if value not in known
        ]


@functools.cache
def by_hash(table: Table, columns: Columns, hashing: Hashing) -> Rows:
    """Rows by a hash of their prompts as the data has them, whatever the template: equal prompts
    fall into one split, and further rows move none."""
    found: dict[Split, list[int]] = {split: [] for split in Split}
    for number, row in enumerate(table):
        found[hashing.split_of(columns.key(row, table.uid(number)))].append(number)
    shares = {Split.validation: hashing.validation_share, Split.test: hashing.test_share}
    shares[Split.train] = 1 - sum(shares.values())
    return Rows(table.source, found, shares)


@functools.cache
def by_column(table: Table, column: str, naming: Naming) -> Rows:
    """Rows by the values of a column; those with another value are in no split."""
    found: dict[Split, list[int]] = {split: [] for split in Split}
    splits = {naming.of(split): split for split in Split}
    values: Counter[str] = Counter()
    for number, row in enumerate(table):
        value = str(field_of(row, column, table.uid(number), "task.split_column"))
        values[value] += 1
        if split := splits.get(value):
            found[split].append(number)
    return Rows(table.source, found, {}, column, naming, values)

"""The examples of a split, and examples that are made when they are read."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from rlhf_lab.types.samples import Example

if TYPE_CHECKING:
    import numpy as np


class Examples(Sequence[Example]):
    """The examples of a split."""

    def keeping(self, columns: Collection[str] | None) -> Examples:
        """The same rows, whose examples have these columns of the data, where it has columns; None
        for all."""
        return self

    def order(self, rng: np.random.Generator) -> np.ndarray:
        """The order of the rows in an epoch."""
        return rng.permutation(len(self))


class LazyExamples(Examples):
    """`size` examples, none of them stored; make(i) must return the same one at any time."""

    def __init__(self, size: int, make: Callable[[int], Example]) -> None:
        self._size = size
        self._make = make

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: int) -> Example:  # type: ignore[override]
        if not 0 <= index < self._size:
            raise IndexError(f"row {index} of {self._size}")
        return self._make(index)


class ChosenExamples(Examples):
    """Those of the examples that have these numbers, read when they are needed."""

    def __init__(self, examples: Sequence[Example], numbers: Sequence[int]) -> None:
        self._examples = examples
        self._numbers = numbers

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, index: int) -> Example:  # type: ignore[override]
        return self._examples[self._numbers[index]]


def as_examples(rows: Sequence[Example]) -> Examples:
    """The rows themselves, or those of a plain sequence, as a task of a plugin may have them."""
    return rows if isinstance(rows, Examples) else ChosenExamples(rows, range(len(rows)))

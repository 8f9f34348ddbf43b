"""Rows that are made when they are read."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rlhf_lab.types.samples import Example


class LazyRows(Sequence[Example]):
    """`size` rows, none of them stored; make(i) must return the same row at any time."""

    def __init__(self, size: int, make: Callable[[int], Example]) -> None:
        self._size = size
        self._make = make

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: int) -> Example:  # type: ignore[override]
        if not 0 <= index < self._size:
            raise IndexError(f"row {index} of {self._size}")
        return self._make(index)


class ChosenExamples(Sequence[Example]):
    """Those of the examples that have these numbers, read when they are needed."""

    def __init__(self, examples: Sequence[Example], numbers: Sequence[int]) -> None:
        self._examples = examples
        self._numbers = numbers

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, index: int) -> Example:  # type: ignore[override]
        return self._examples[self._numbers[index]]

"""Splits whose rows are generated when they are read."""

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

"""Tallies of an audit: how long texts are, and which rows are repeated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

# The name of a row, by its number, in a report.
NameOf = Callable[[int], str]


class Lengths:
    """The distribution of text lengths, as a count for each length."""

    def __init__(self, limit: int = 0) -> None:
        self.limit = limit
        self._counts: Counter[int] = Counter()

    def add(self, length: int) -> None:
        self._counts[length] += 1

    @property
    def num(self) -> int:
        return self._counts.total()

    @property
    def mean(self) -> float:
        return sum(length * count for length, count in self._counts.items()) / self.num

    @property
    def num_over(self) -> int:
        """Texts longer than the limit."""
        return sum(count for length, count in self._counts.items() if length > self.limit)

    def quantile(self, share: float) -> int:
        """The smallest length that at least this share of the texts do not exceed."""
        # 0.55 of 200 is a little more than 110 in floating point.
        needed = share * self.num - 1e-6
        seen = 0
        for length in sorted(self._counts):
            seen += self._counts[length]
            if seen >= needed:
                return length
        raise AssertionError("no lengths")


@dataclass
class Repeats:
    """Rows equal to an earlier one; `named` are the first few, each with the earlier one."""

    most_named: int
    num: int = 0
    named: list[tuple[str, str]] = field(default_factory=list)
    _seen: dict[int, int] = field(default_factory=dict)

    def add(self, key: int, index: int, name_of: NameOf) -> bool:
        """Whether an earlier row has this key."""
        first = self._seen.setdefault(key, index)
        if first == index:
            return False
        self.num += 1
        if len(self.named) < self.most_named:
            self.named.append((name_of(index), name_of(first)))
        return True

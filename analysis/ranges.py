"""Lists and ranges in words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

FEW = 3


def listed(values: Iterable[object]) -> str:
    """Values with commas between them."""
    return ", ".join(map(str, values))


def ranges_text(numbers: Iterable[int]) -> str:
    """Whole numbers in order, three or more consecutive ones as a range: 1, 3 to 9, 11, 12."""
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and number == ranges[-1][-1] + 1:
            ranges[-1].append(number)
        else:
            ranges.append([number])
    return listed(f"{one[0]} to {one[-1]}" if len(one) > 2 else listed(one) for one in ranges)


def span_text(counts: Sequence[int]) -> str:
    """One number where all are the same, else the least and the most: `3 to 5`."""
    least, most = min(counts), max(counts)
    return str(least) if least == most else f"{least} to {most}"


def unique(texts: Iterable[str]) -> tuple[str, ...]:
    """Each text once, in order."""
    return tuple(dict.fromkeys(texts))


def first_few(texts: Sequence[str], noun: str = "") -> list[str]:
    """The first texts, and how many more there are: `and 4 more conditions`."""
    more = f"and {len(texts) - FEW} more {noun}".rstrip()
    return [*texts[:FEW], *([more] if len(texts) > FEW else [])]

"""Resolve the words that claims about any runs have for levels: `least`, `most`, `next`, ..."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

Level = tuple[Any, ...]


def before_and_after(
    change: Mapping[str, Sequence[Any]], values: Mapping[str, Sequence[Any]]
) -> tuple[Level, list[list[Level]]]:
    """The levels before a change, and those after it. values: of each key, in order.

    Every list of levels after it is one comparison, with its levels in the order of preference.
    """
    before = tuple(first(row[0], values[key]) for key, row in change.items())
    groups = [
        after(row[1], start, values[key])
        for (key, row), start in zip(change.items(), before, strict=True)
    ]
    return before, [list(product(*group)) for group in product(*groups)]


def first(word: Any, values: Sequence[Any]) -> Any:
    """The level of `least` and `most`; any other word is a level itself."""
    return {"least": values[0], "most": values[-1]}.get(word, word)


def after(word: Any, start: Any, values: Sequence[Any]) -> list[list[Any]]:
    """The comparisons that a word stands for, each with its levels in the order of preference.

    `most` falls back to smaller levels, as a measure may not exist of the most. A list stands for
    those of its levels that are there, any other word for itself.
    """
    if isinstance(word, list):
        return [[value] for value in values if value in word]
    if word == "most":
        return [list(reversed(values[1:]))]
    if word == "next":
        return [[value] for value in values[1:2]]
    if word == "middle":
        return [[value] for value in values[1:-1]]
    if word == "more":
        return [[value] for value in values if value > start]
    if word == "less":
        return [[value] for value in reversed(values) if value < start]
    if word == "other":
        return [[value] for value in values if value != start]
    return [[word]]

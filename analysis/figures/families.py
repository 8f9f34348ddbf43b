"""Which conditions a figure may put side by side: those that differ in what it tells alone."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from analysis.comparison.families import once, rest_of, settings_of, value
from analysis.comparison.selection import Cell

# What goes with another key: samples of sync are of S = 0, more of them come in fewer updates.
IMPLIED = {"mode": ("max_staleness",), "group_size": ("updates",)}


@dataclass(frozen=True)
class Family:
    """Conditions that share everything but the keys told, and what they share."""

    cells: tuple[Cell, ...]
    shared: Mapping[str, Any]

    def values(self, key: str) -> list[Any]:
        """The values of a part among them, in order."""
        return sorted({value(cell, key) for cell in self.cells}, key=order)

    def title(self, keys: Sequence[str]) -> str:
        """What tells this family from others: the given parts, or its environment."""
        return self.cells[0].title(keys) or self.cells[0].env


def order(found: Any) -> tuple[bool, Any]:
    return (isinstance(found, str), found if isinstance(found, int | float | str) else str(found))


def families(
    cells: Sequence[Cell], told: Sequence[str], varies: Sequence[str], apart: Sequence[str] = ()
) -> list[Family]:
    """Groups of cells that differ in the keys told alone, whichever sweeps they are of, those in
    which every key of `varies` has two values at least. apart: keys that part families even if told
    would allow them. A condition that several sweeps have is there once.

    Cells that cannot be told apart by these keys are in families of their own, by the settings in
    which they differ, so that none is taken for another.
    """
    groups: dict[Hashable, list[Cell]] = {}
    for cell in once(cells):
        groups.setdefault(place(cell, told, apart), []).append(cell)
    parted = [each for group in groups.values() for each in split(group, told)]
    found = [Family(tuple(in_order(group, told)), shared(group)) for group in parted]
    return [each for each in found if all(len(each.values(key)) > 1 for key in varies)]


def place(cell: Cell, told: Sequence[str], apart: Sequence[str]) -> Hashable:
    """What conditions of one family have in common."""
    open_ = {*told, *(name for key in told for name in IMPLIED.get(key, ()))} - {*apart}
    return ("" if "model" in open_ else cell.env, rest_of(cell, open_))


def in_order(cells: Sequence[Cell], told: Sequence[str]) -> list[Cell]:
    return sorted(cells, key=lambda cell: tuple(order(value(cell, key)) for key in told))


def split(cells: Sequence[Cell], told: Sequence[str]) -> list[list[Cell]]:
    """By the settings in which cells differ that the told keys cannot tell apart."""
    seen: dict[Hashable, list[Cell]] = {}
    for cell in cells:
        seen.setdefault(tuple(str(value(cell, key)) for key in told), []).append(cell)
    keys = sorted(
        {k for same in seen.values() for a, b in combinations(same, 2) for k in differing(a, b)}
    )
    if not keys:
        return [list(cells)]
    groups: dict[Hashable, list[Cell]] = {}
    for cell in cells:
        held = dict(settings_of(cell))
        groups.setdefault(tuple(held.get(key) for key in keys), []).append(cell)
    return list(groups.values())


def differing(one: Cell, other: Cell) -> set[str]:
    """The settings in which two conditions differ."""
    return {key for key, _ in {*settings_of(one)} ^ {*settings_of(other)}}


def shared(cells: Sequence[Cell]) -> dict[str, Any]:
    """The parts that all of them have in common."""
    first = cells[0].parts
    return {n: v for n, v in first.items() if all(c.parts.get(n) == v for c in cells)}

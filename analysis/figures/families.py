"""Group the conditions that a figure may compare: those that differ only in its keys."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import combinations

from rlhf_lab_analysis.comparison.cell import Cell
from rlhf_lab_analysis.comparison.families import (
    Family,
    differences,
    drop_shared,
    order,
    rest_of,
    value_of,
)

# What changes with another key: sync has S = 0, more samples a prompt come in fewer updates.
IMPLIED = {"mode": ("max_staleness",), "group_size": ("updates",)}


def families(cells: Sequence[Cell], keys: Sequence[str], varies: Sequence[str]) -> list[Family]:
    """Groups of cells that differ in these keys alone, whichever sweeps they are of, those in
    which every key of `varies` has two values at least. A condition of several sweeps counts once.

    Cells that have the same values of all keys are in families of their own, by the settings in
    which they differ, so that none is taken for another.
    """
    free = {*keys, *(name for key in keys for name in IMPLIED.get(key, ()))}
    groups = group_by(
        drop_shared(cells), lambda cell: ("" if "model" in free else cell.env, rest_of(cell, free))
    )
    found = [Family(tuple(in_order(each, keys))) for group in groups for each in split(group, keys)]
    found.sort(key=lambda family: order(value_of(family.first, "model")))
    return [each for each in found if all(len(each.values(key)) > 1 for key in varies)]


def group_by(cells: Iterable[Cell], key_of: Callable[[Cell], Hashable]) -> list[list[Cell]]:
    """The cells of each key, in order of the first ones."""
    groups: dict[Hashable, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(key_of(cell), []).append(cell)
    return list(groups.values())


def in_order(cells: Sequence[Cell], keys: Sequence[str]) -> list[Cell]:
    return sorted(cells, key=lambda cell: tuple(order(value_of(cell, key)) for key in keys))


def split(cells: Sequence[Cell], keys: Sequence[str]) -> list[list[Cell]]:
    """By the settings in which cells with the same values of the keys differ."""
    alike = group_by(cells, lambda cell: tuple(str(value_of(cell, key)) for key in keys))
    pairs = (pair for group in alike for pair in combinations(group, 2))
    differing = sorted({key for one, other in pairs for key in differences(one, other)})
    return group_by(cells, lambda cell: settings_at(cell, differing))


def settings_at(cell: Cell, keys: Sequence[str]) -> tuple[str | None, ...]:
    return tuple(cell.settings.get(key) for key in keys)

"""Group conditions that can be compared whatever they differ in, and name them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from rlhf_lab_analysis.comparison.families import Family, order, value_of
from rlhf_lab_analysis.comparison.selection import Cell
from rlhf_lab_analysis.figures.families import group_by

Grouping: TypeAlias = Callable[[Sequence[Cell]], list[Family]]
# What distinguishes conditions; colours stand for the first that does.
KEYS = (
    "algo mode correction updates_per_round max_staleness passes group_size proxy reward model"
).split()


def by_sweep(cells: Sequence[Cell]) -> list[Family]:
    """All conditions of a sweep, over all its environments."""
    return comparable(group_by(cells, lambda cell: cell.sweep))


def by_env(cells: Sequence[Cell]) -> list[Family]:
    """All conditions of a sweep in one environment, whose scores are of one scale."""
    return comparable(group_by(cells, lambda cell: (cell.sweep, cell.env)))


def modes_first(cells: Sequence[Cell]) -> list[Family]:
    """The same, those first that have sync beside async."""

    def is_without(family: Family) -> bool:
        return not {"sync", "async"} <= {str(cell.parts["mode"]) for cell in family.cells}

    return sorted(by_env(cells), key=is_without)


def by_algo(cells: Sequence[Cell]) -> list[Family]:
    """The same, each algorithm by itself where something else varies within algorithms."""
    parted = []
    for family in by_env(cells):
        by_name = group_by(family.cells, lambda cell: str(cell.parts["algo"]))
        parted += comparable(by_name) or [family]
    return parted


def comparable(groups: Sequence[Sequence[Cell]]) -> list[Family]:
    """The groups of two conditions at least, each in the order of its parts."""
    return [Family(tuple(sorted(group, key=rank))) for group in groups if len(group) > 1]


def rank(cell: Cell) -> tuple[object, ...]:
    """The freshest first: no correction, sync, small N, S, T and K."""
    parts = cell.parts
    first = (str(parts["algo"]), parts["correction"] != "none", parts["mode"] != "sync")
    numbers = ("max_staleness", "updates_per_round", "passes", "group_size")
    return (*first, *(order(parts[name] or 0) for name in numbers), cell.condition, cell.env)


def baseline(family: Family) -> Cell:
    """What others are compared with: the freshest of them."""
    return min(family.cells, key=lambda cell: rank(cell)[1:])


def keys_of(family: Family) -> list[str]:
    """The parts in which the conditions of a family differ; the algorithm if there are none."""
    differ = [key for key in KEYS if len({str(value_of(c, key)) for c in family.cells}) > 1]
    return differ or ["algo"]


def names_of(family: Family) -> list[str]:
    """A name for each condition: the parts that differ, or all of it if these are not unique."""
    short = [cell.title(keys_of(family)) or "no correction" for cell in family.cells]
    return short if len({*short}) == len(short) else [cell.condition for cell in family.cells]

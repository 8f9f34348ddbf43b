"""Which conditions a figure may put side by side: those that differ in what it tells alone."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from analysis.selection import Cell
from analysis.tables.conditions import NUMBERS, PARTS

# What says where a run writes and whom it tells, or differs between seeds.
NOT_SETTINGS = ("seed", "output", "tracker", "checkpoint", "env_id", "exp_name", "hydra")
# Keys of the config that say what a part says already.
CONFIG_OF = {**NUMBERS, **{part: part for part in PARTS}}


# A part that goes with another one: samples of sync are of S = 0.
IMPLIED = {"mode": ("max_staleness",)}


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


def value(cell: Cell, key: str) -> Any:
    """A part of the condition, or the value of a key of its config."""
    return cell.parts[key] if key in cell.parts else cell.config(key)


def families(
    cells: Sequence[Cell], told: Sequence[str], varies: Sequence[str], apart: Sequence[str] = ()
) -> list[Family]:
    """Groups of cells that differ in the keys told alone, those in which every key of `varies` has
    two values at least. apart: keys that part families even if told would allow them.

    Cells that cannot be told apart by these keys are in families of their own, by the settings in
    which they differ, so that none is taken for another.
    """
    groups: dict[Hashable, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(place(cell, told, apart), []).append(cell)
    parted = [each for group in groups.values() for each in split(group, told)]
    found = [Family(tuple(in_order(group, told)), shared(group)) for group in parted]
    return [each for each in found if all(len(each.values(key)) > 1 for key in varies)]


def place(cell: Cell, told: Sequence[str], apart: Sequence[str]) -> Hashable:
    open_ = {*told, *(name for key in told for name in IMPLIED.get(key, ()))}
    parts = tuple((n, str(v)) for n, v in cell.parts.items() if n not in open_ or n in apart)
    is_scale = "model" in told and "model" not in apart
    return (cell.sweep, "" if is_scale else cell.env, parts)


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
        groups.setdefault(tuple(str(leaves(cell).get(key)) for key in keys), []).append(cell)
    return list(groups.values())


def differing(one: Cell, other: Cell) -> list[str]:
    """The settings in which two conditions differ."""
    first, second = leaves(one), leaves(other)
    return [key for key in {*first, *second} if first.get(key) != second.get(key)]


def leaves(cell: Cell) -> dict[str, Any]:
    """The settings of a condition's first seed by dotted key."""
    return dict(flat(next(iter(cell.configs.values())), ""))


def flat(config: Mapping[str, Any], before: str) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for key, held in config.items():
        if not before and key in NOT_SETTINGS:
            continue
        name = f"{before}.{key}" if before else str(key)
        found += flat(held, name) if isinstance(held, Mapping) else [(name, held)]
    return found


def shared(cells: Sequence[Cell]) -> dict[str, Any]:
    """The parts that all of them have in common."""
    first = cells[0].parts
    return {n: v for n, v in first.items() if all(c.parts.get(n) == v for c in cells)}

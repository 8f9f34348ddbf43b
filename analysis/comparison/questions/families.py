"""Conditions that differ in nothing but what a question varies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.comparison.families import Settings, rest_of, value, versions
from analysis.comparison.selection import Cell, Selection


@dataclass(frozen=True, eq=False)
class Family:
    """Conditions by what is varied: values of the varied parts, in order."""

    varied: tuple[str, ...]
    cells: Mapping[tuple[Any, ...], Cell]

    def values(self, part: str) -> list[Any]:
        """The values of one varied part, in order."""
        place = self.varied.index(part)
        return sorted({values[place] for values in self.cells})

    def line(self, part: str, **rest: Any) -> dict[Any, Cell]:
        """The conditions along one part, with the others as given."""
        place = self.varied.index(part)
        wanted = [rest.get(name) for name in self.varied]
        return {
            values[place]: cell
            for values, cell in sorted(self.cells.items(), key=lambda one: one[0])
            if all(
                name == part or value == want
                for name, value, want in zip(self.varied, values, wanted, strict=True)
            )
        }

    @property
    def first(self) -> Cell:
        return next(iter(self.cells.values()))


def families(selection: Selection, varied: Sequence[str]) -> list[Family]:
    """Groups of at least two conditions, alike in every setting that is not varied.

    varied: parts of conditions. Sweeps share conditions: each counts once. Of those that differ in
    what belongs to a varied part, but not in its value, the one with the most evaluated versions
    counts, else the first.
    """
    groups: dict[Settings, dict[tuple[Any, ...], Cell]] = {}
    for cell in selection.cells:
        values = tuple(value(cell, name) for name in varied)
        if None in values:
            continue
        group = groups.setdefault(rest_of(cell, varied), {})
        if values not in group or versions(cell) > versions(group[values]):
            group[values] = cell
    return [Family(tuple(varied), found) for found in groups.values() if len(found) > 1]

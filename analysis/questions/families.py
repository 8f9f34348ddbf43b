"""Conditions that differ in nothing but what a question varies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.selection import Cell, Selection
from analysis.tables.group_checks import compared


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


SNAPSHOTS = "eval.snapshots"
# A part, and the keys of the config that change with it.
KEYS: Mapping[str, tuple[str, ...]] = {
    "updates_per_round": ("run.updates_per_round",),
    "passes": ("run.passes",),
    "group_size": ("run.group_size",),
    "updates": ("run.updates",),
    "schedule_per": ("optim.schedule_per",),
    "mode": ("mode.",),
    "max_staleness": ("mode.",),
    "correction": ("correction.",),
    "model": ("model.",),
    "proxy": ("proxy.",),
    "algo": ("algo.",),
}


def part_of(cell: Cell, name: str) -> Any:
    """A part's value; those that tables have no column of are in the config."""
    if name in cell.parts:
        return cell.parts[name]
    return cell.config(KEYS[name][0])


def families(selection: Selection, varied: Sequence[str]) -> list[Family]:
    """Groups of at least two conditions, alike in every setting that is not varied.

    varied: names of KEYS. Sweeps share conditions: of those with the same settings the one with the
    most evaluated versions counts, else the first. How often a run is evaluated changes nothing in
    it (eval.snapshots).
    """
    keys = (SNAPSHOTS, *(key for name in varied for key in KEYS[name]))
    groups: dict[tuple[tuple[str, str], ...], dict[tuple[Any, ...], Cell]] = {}
    for cell in selection.cells:
        values = tuple(part_of(cell, name) for name in varied)
        if None in values:
            continue
        rest = tuple(item for item in settings_of(cell) if not item[0].startswith(keys))
        group = groups.setdefault(rest, {})
        if values not in group or versions(cell) > versions(group[values]):
            group[values] = cell
    return [Family(tuple(varied), found) for found in groups.values() if len(found) > 1]


def versions(cell: Cell) -> int:
    """How many versions every run of it was evaluated at."""
    return min(len(rows) for rows in cell.rows.values())


def settings_of(cell: Cell) -> tuple[tuple[str, str], ...]:
    """What a condition's runs were made with, seeds aside."""
    first = cell.configs[cell.seeds[0]]
    return tuple(sorted(compared(first).items()))

"""What a figure needs of runs, and whether they are there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from analysis.figures.courses import is_judged
from analysis.figures.families import Family, families, value
from analysis.figures.names import label
from analysis.figures.sheet import Drawn
from analysis.selection import Cell, Selection
from analysis.tables.conditions import LETTERS


@dataclass(frozen=True)
class Wants:
    """told: keys by which conditions of one panel differ. varies: those that need two values.
    metrics: columns that must be judged. where: values that parts must have. apart: keys that part
    families. any_of: a further key of which one must vary."""

    told: tuple[str, ...]
    varies: tuple[str, ...]
    metrics: tuple[str, ...]
    where: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    any_of: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """Which runs these are."""
        need = [
            f"conditions that differ in {words(key)} and in nothing untold" for key in self.varies
        ]
        need += [f"that differ in {' or '.join(map(words, self.any_of))}"] if self.any_of else []
        need += [f"{key} {' or '.join(map(str, held))}" for key, held in self.where.items()]
        return ", ".join([*need, f"judged by {' and '.join(self.metrics)}"])


@dataclass(frozen=True)
class Entry:
    """A figure: its name, what it shows, its sweeps (whose runs are preferred), what it needs."""

    name: str
    shows: str
    sweeps: tuple[str, ...]
    wants: Wants
    draw: Callable[[Sequence[Family]], Drawn]


def words(key: str) -> str:
    return f"{label(key)}" if key in LETTERS else key


def chosen(entry: Entry, selection: Selection) -> tuple[list[Family], str]:
    """The families that a figure draws, and what is missing if there is none.

    Runs of the figure's own sweeps are taken if they are there, else all that fit.
    """
    wants = entry.wants
    fitting = [cell for cell in selection.cells if fits(cell, wants)]
    own = [cell for cell in fitting if is_of(cell, entry.sweeps)]
    for candidates in (own, fitting):
        found = [
            family
            for family in families(candidates, wants.told, wants.varies)
            if not wants.any_of or any(len(family.values(key)) > 1 for key in wants.any_of)
        ]
        if found:
            return found, ""
    sweeps = " or ".join(f"{name}[_nano]" for name in entry.sweeps)
    ran = f"; the sweep {sweeps} makes them" if sweeps else ""
    return (
        [],
        f"it needs {wants.words}{ran}. {len(fitting)} of {len(selection.cells)} conditions fit",
    )


def is_of(cell: Cell, sweeps: Sequence[str]) -> bool:
    return any(cell.sweep in (name, f"{name}_nano") for name in sweeps)


def fits(cell: Cell, wants: Wants) -> bool:
    """Whether a condition has the values and the metrics that are wanted."""
    has = all(value(cell, key) in held for key, held in wants.where.items())
    known = all(value(cell, key) is not None for key in wants.varies)
    return has and known and is_judged(cell, wants.metrics)

"""What a figure needs of runs, and whether they are there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from analysis.comparison.families import value
from analysis.comparison.selection import Cell, Selection
from analysis.figures.courses import is_judged
from analysis.figures.families import Family, families
from analysis.figures.names import label
from analysis.figures.pools import Pool
from analysis.figures.sheet import Drawn
from analysis.sources.conditions import LETTERS


@dataclass(frozen=True)
class Wants:
    """told: keys by which conditions of one panel differ. varies: those that need two values.
    metrics: columns that must be judged. where: values that parts must have. apart: keys that part
    families. any_of: keys of which one at least must vary. recorded: what points must have.
    pool: puts conditions together whatever they differ in. seeds: how many each needs."""

    told: tuple[str, ...]
    varies: tuple[str, ...]
    metrics: tuple[str, ...]
    where: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    any_of: tuple[str, ...] = ()
    recorded: tuple[str, ...] = ()
    pool: Pool | None = None
    seeds: int = 1

    @property
    def words(self) -> str:
        """Which runs these are."""
        need = [f"conditions that differ in {words(key)}" for key in self.varies]
        need += [f"that differ in {' or '.join(map(words, self.any_of))}"] if self.any_of else []
        need += [f"{key} {' or '.join(map(str, held))}" for key, held in self.where.items()]
        if self.pool:
            need.append(f"two conditions of a sweep with {self.seeds} seeds each")
        return ", ".join([*need, f"with {' and '.join((*self.metrics, *self.recorded))}"])


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


@dataclass(frozen=True)
class Choice:
    """The families that a figure draws; what is missing if there is none; what was left out."""

    families: tuple[Family, ...]
    missing: str
    left_out: tuple[str, ...]


def chosen(entry: Entry, selection: Selection) -> Choice:
    """What a figure draws of a selection.

    Runs of the figure's own sweeps are taken if they are there, else all that fit.
    """
    wants = entry.wants
    alike = [cell for cell in selection.cells if has_values(cell, wants)]
    fitting = [cell for cell in alike if is_measured(cell, wants)]
    unjudged = tuple(
        f"left out: {cell.condition} [{cell.env}] (not {wants.seeds} seeds or more that all have "
        f"{' and '.join((*wants.metrics, *wants.recorded))} as numbers at one version)"
        for cell in alike
        if cell not in fitting
    )
    own = [cell for cell in fitting if is_of(cell, entry.sweeps)]
    for candidates in (own, fitting):
        if found := wanted(candidates, wants):
            return Choice(found, "", (*selection.left_out, *unjudged))
    sweeps = " or ".join(f"{name}[_nano]" for name in entry.sweeps)
    ran = f"; the sweep {sweeps} makes them" if sweeps else ""
    fit = f"{len(fitting)} of {len(selection.cells)} conditions have its values and metrics"
    return Choice((), f"it needs {wants.words}{ran}. {fit}", (*selection.left_out, *unjudged))


def wanted(cells: Sequence[Cell], wants: Wants) -> tuple[Family, ...]:
    """The families of which something varies that has to."""
    found = wants.pool(cells) if wants.pool else families(cells, wants.told, wants.varies)
    return tuple(
        family
        for family in found
        if not wants.any_of or any(len(family.values(key)) > 1 for key in wants.any_of)
    )


def is_of(cell: Cell, sweeps: Sequence[str]) -> bool:
    return any(cell.sweep in (name, f"{name}_nano") for name in sweeps)


def has_values(cell: Cell, wants: Wants) -> bool:
    """Whether a condition has the values that are wanted."""
    has = all(value(cell, key) in held for key, held in wants.where.items())
    return has and all(value(cell, key) is not None for key in wants.varies)


def is_measured(cell: Cell, wants: Wants) -> bool:
    """Whether a condition has the metrics that are wanted."""
    has = all(name in rows for rows in cell.recorded.values() for name in wants.recorded)
    return has and len(cell.seeds) >= wants.seeds and is_judged(cell, wants.metrics)

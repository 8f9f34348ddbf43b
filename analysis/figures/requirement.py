"""State which runs a figure needs, and choose those that it draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlhf_lab.runs.trackers.console import counted
from rlhf_lab_analysis.comparison.cell import Cell
from rlhf_lab_analysis.comparison.families import Family, value_of
from rlhf_lab_analysis.comparison.selection import Selection
from rlhf_lab_analysis.figures.families import families
from rlhf_lab_analysis.figures.grouping import Grouping
from rlhf_lab_analysis.figures.mean_curves import is_judged
from rlhf_lab_analysis.sources.conditions import LETTERS
from rlhf_lab_analysis.words import label

# An interval needs two seeds at least.
SEEDS = 2


@dataclass(frozen=True)
class Requirement:
    """keys: in which the conditions of one panel differ. metrics: columns of evaluated versions.
    varies: keys that need two values, all keys unless given. where: values that keys must have.
    any_of: keys of which one at least must vary. recorded: columns of training rounds. grouping:
    puts any conditions together, whatever they differ in. seeds: how many each condition needs."""

    keys: tuple[str, ...]
    metrics: tuple[str, ...]
    varies: tuple[str, ...] | None = None
    where: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    any_of: tuple[str, ...] = ()
    recorded: tuple[str, ...] = ()
    grouping: Grouping | None = None
    seeds: int = 1

    @property
    def varied(self) -> tuple[str, ...]:
        return self.keys if self.varies is None else self.varies

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.metrics, *self.recorded)

    @property
    def text(self) -> str:
        """Which runs these are."""
        need = [f"conditions that differ in {key_text(key)}" for key in self.varied]
        if self.any_of:
            noun = "that" if need else "conditions that"
            need.append(f"{noun} differ in {' or '.join(map(key_text, self.any_of))}")
        need += [f"{key} {' or '.join(map(str, values))}" for key, values in self.where.items()]
        if self.grouping:
            need.append(f"two conditions of a sweep with {self.seeds} seeds each")
        return ", ".join([*need, f"with {' and '.join(self.columns)}"])

    def has_values(self, cell: Cell) -> bool:
        """Whether a condition has the required values of its keys."""
        has = all(value_of(cell, key) in values for key, values in self.where.items())
        return has and all(value_of(cell, key) is not None for key in self.varied)

    def is_measured(self, cell: Cell) -> bool:
        """Whether a condition has the required metrics of enough seeds."""
        has = all(name in rows for rows in cell.recorded.values() for name in self.recorded)
        return has and len(cell.seeds) >= self.seeds and is_judged(cell, self.metrics)

    def without_numbers(self, cell: Cell) -> str:
        """Why a condition that has the required values is left out."""
        reason = f"its seeds do not all have {' and '.join(self.columns)} as numbers at one version"
        if len(cell.seeds) < self.seeds:
            reason = f"{counted(len(cell.seeds), 'seed')}, of {self.seeds} that it takes"
        return f"left out: {cell.condition} [{cell.env}] ({reason})"

    def place_of(self, cell: Cell) -> tuple[str, ...]:
        """The environment of a condition, and its values of the keys."""
        return (cell.env, *(str(value_of(cell, key)) for key in self.keys))

    def with_others(self, cells: Sequence[Cell], sweeps: Sequence[str]) -> list[Cell]:
        """The conditions of these sweeps, then those of other sweeps that have an environment or
        values of the keys that no condition of these sweeps has."""
        own = of_sweeps(cells, sweeps)
        there = {self.place_of(cell) for cell in own}
        return own + [cell for cell in cells if self.place_of(cell) not in there]

    def families_of(self, cells: Sequence[Cell]) -> tuple[Family, ...]:
        """The families of these conditions in which the required keys vary."""
        every = self.grouping(cells) if self.grouping else families(cells, self.keys, self.varied)
        return tuple(
            family
            for family in every
            if not self.any_of or any(len(family.values(key)) > 1 for key in self.any_of)
        )


def key_text(key: str) -> str:
    return label(key) if key in LETTERS else key


def any_two(*metrics: str, grouping: Grouping) -> Requirement:
    """Any two conditions with these metrics, of enough seeds for an interval."""
    return Requirement((), metrics, grouping=grouping, seeds=SEEDS)


@dataclass(frozen=True)
class Choice:
    """The families that a figure draws; what is missing if there is none; what was left out.
    is_own: whether they are of the figure's own sweeps."""

    families: tuple[Family, ...]
    missing: str
    left_out: tuple[str, ...]
    is_own: bool = False


def of_sweeps(cells: Sequence[Cell], sweeps: Sequence[str]) -> list[Cell]:
    """The conditions of these sweeps. A sweep of nano policies has the name NAME_nano."""
    names = {form for name in sweeps for form in (name, f"{name}_nano")}
    return [cell for cell in cells if cell.sweep in names]


def choose(
    needs: Requirement, sweeps: Sequence[str], selection: Selection, beside: Sequence[str] = ()
) -> Choice:
    """Choose the runs that a figure draws: those of `sweeps`, with those of `beside` where they
    have none of the same environment and values, if these suffice; else all that fit."""
    alike = [cell for cell in selection.cells if needs.has_values(cell)]
    preferred = of_sweeps(alike, (*sweeps, *beside))
    for candidates, is_own in ((preferred, True), (alike, False)):
        measured = [cell for cell in candidates if needs.is_measured(cell)]
        drawn = needs.with_others(measured, sweeps) if is_own else measured
        if families_ := needs.families_of(drawn):
            lacking = [needs.without_numbers(cell) for cell in candidates if cell not in measured]
            return Choice(families_, "", (*selection.left_out, *lacking), is_own)
    ran = f"; the sweep {' or '.join(f'{name}[_nano]' for name in sweeps)} makes them"
    fit = f"{len(measured)} of {len(selection.cells)} conditions have its values and metrics"
    return Choice((), f"it needs {needs.text}{ran if sweeps else ''}. {fit}", selection.left_out)

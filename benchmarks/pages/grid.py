"""Conditions of an off-policy study as a grid: algorithms down, staleness across."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.comparison.cell import Cell
from rlhf_lab_analysis.comparison.families import rest_of

# Settings in which the runs of one table may differ; they differ in their seed too.
VARIED = ("algo", "mode", "correction", "updates_per_round", "group_size")


# What fixed pairs and a generator of samples differ in.
OF_PAIRS = {"generator.name", "generator.path", "generator.scores"}


@dataclass(frozen=True, order=True)
class Column:
    """A column: how stale the samples are. lagged counts as async: both give the same bits."""

    updates_per_round: int
    max_staleness: int
    mode: str

    @property
    def title(self) -> str:
        """The head of the column: `sync`, `async S=1`, `N=16`, `async S=1, N=16`."""
        many = f"N={self.updates_per_round}" if self.updates_per_round > 1 else ""
        if self.mode == "sync":
            return many or "sync"
        return ", ".join(filter(None, [f"{self.mode} S={self.max_staleness}", many]))


SYNC, ASYNC = Column(1, 0, "sync"), Column(1, 1, "async")
# The condition in each row (an algorithm with its correction) and column.
Grid = Mapping[tuple[str, Column], Cell]


def position_of(cell: Cell) -> tuple[str, Column]:
    """The row and column of a condition."""
    parts = cell.parts
    correction = "" if parts["correction"] in ("", "none") else f", {parts['correction']}"
    mode = "async" if parts["mode"] == "lagged" else parts["mode"]
    column = Column(parts["updates_per_round"], parts["max_staleness"], mode)
    return f"{parts['algo']}{correction}", column


def grid_of(cells: Sequence[Cell]) -> Grid:
    """The conditions by row and column, seeds that were trained in several sweeps together.

    Raises UserError for a seed that is there twice, and for settings that may not differ.
    """
    grid: dict[tuple[str, Column], Cell] = {}
    for cell in cells:
        require_same_settings(cell, cells[0])
        position = position_of(cell)
        grid[position] = (
            join_conditions(grid[position], cell, position) if position in grid else cell
        )
    return grid


def require_same_settings(cell: Cell, other: Cell) -> None:
    """Raise UserError for settings that may not differ. An offline algorithm has fixed pairs in the
    place of a generator's samples."""
    own, expected = dict(rest_of(cell, VARIED)), dict(rest_of(other, VARIED))
    is_offline = "pairs" in (own.get("generator.name"), expected.get("generator.name"))
    for key in sorted({*own, *expected} - (OF_PAIRS if is_offline else set())):
        if own.get(key) != expected.get(key):
            raise UserError(
                f"{key}={own.get(key)} in {place_of(cell)}, but {key}={expected.get(key)} in "
                f"{place_of(other)}: pass runs that differ in algorithm, mode, N and seed alone"
            )


def join_conditions(first: Cell, second: Cell, position: tuple[str, Column]) -> Cell:
    """Both as one condition. Raises UserError if a seed is in both, or K differs."""
    name = f"{position[0]}, {position[1].title}"
    if twice := sorted(set(first.seeds) & set(second.seeds)):
        raise UserError(
            f"seed={twice[0]} of {name} occurs twice, in {place_of(first, twice[0])} and "
            f"{place_of(second, twice[0])}: pass one of them"
        )
    if first.parts["mode"] == second.parts["mode"] and first.settings != second.settings:
        raise UserError(
            f"{name} has other settings in {place_of(second)} than in {place_of(first)}: pass one "
            "of them"
        )
    return replace(first, members={**first.members, **second.members})


def place_of(cell: Cell, seed: int | None = None) -> str:
    """Where a run of a condition is."""
    return str(cell.runs[cell.seeds[0] if seed is None else seed]["place"])


def rows_of(grid: Grid) -> list[str]:
    return sorted({row for row, _ in grid})


def columns_of(grid: Grid) -> list[Column]:
    return sorted({column for _, column in grid})


def seeds_of(grid: Grid) -> list[int]:
    return sorted({seed for cell in grid.values() for seed in cell.seeds})

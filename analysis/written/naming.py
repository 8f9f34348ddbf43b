"""Short names for conditions: the parts in which they differ, and no others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from analysis.comparison.selection import Cell
from analysis.sources.conditions import LETTERS

Key = tuple[str, str, str]


def key(cell: Cell) -> Key:
    """What tells a condition from all others."""
    return cell.sweep, cell.env, cell.condition


def in_order(cells: Sequence[Cell]) -> tuple[Cell, ...]:
    """Conditions by sweep, environment and parts, numbers by size."""
    numbers = [name for name in LETTERS if any(cell.parts.get(name) for cell in cells)]

    def place(cell: Cell) -> tuple[object, ...]:
        texts = [str(cell.parts.get(name, "")) for name in ("algo", "mode", "correction")]
        sizes = [cell.parts.get(name) or 0 for name in numbers]
        return (cell.sweep, cell.env, *texts[:2], *sizes, texts[2], cell.condition)

    return tuple(sorted(cells, key=place))


def titles(cells: Sequence[Cell]) -> Mapping[Key, str]:
    """A name for each condition. Within a sweep and environment no two are called the same: where
    the parts do not tell them apart, the condition does."""
    varied = [
        part
        for part in dict.fromkeys(name for cell in cells for name in cell.parts)
        if len({str(cell.parts.get(part)) for cell in cells}) > 1
        # Environments have a column of their own.
        and part not in ("task", "model")
    ]
    short = {key(cell): cell.title(varied) for cell in cells}
    taken = [(*where[:2], text) for where, text in short.items()]
    if "" in short.values() or len(set(taken)) < len(taken):
        return {key(cell): cell.condition for cell in cells}
    return short


def place_columns(cells: Sequence[Cell]) -> tuple[str, ...]:
    """The columns that say where a condition was run, if that is not the same for all."""
    held = {"sweep": {cell.sweep for cell in cells}, "environment": {cell.env for cell in cells}}
    return tuple(name for name, values in held.items() if len(values) > 1)


def place_of(cell: Cell, columns: Sequence[str]) -> tuple[str, ...]:
    """The entries of those columns."""
    values = {"sweep": cell.sweep or "(none)", "environment": cell.env}
    return tuple(values[name] for name in columns)

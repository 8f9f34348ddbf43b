"""Short names for conditions: the parts in which they differ, and no others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rlhf_lab_analysis.comparison.cell import Cell
from rlhf_lab_analysis.sources.conditions import LETTERS

Key = tuple[str, str, str]


def key(cell: Cell) -> Key:
    """What identifies a condition."""
    return cell.sweep, cell.env, cell.condition


def in_order(cells: Sequence[Cell]) -> tuple[Cell, ...]:
    """Conditions by sweep, environment and parts, numbers by size."""
    numbers = [name for name in LETTERS if any(cell.parts.get(name) for cell in cells)]

    def rank(cell: Cell) -> tuple[object, ...]:
        texts = [str(cell.parts.get(name, "")) for name in ("algo", "mode", "correction")]
        sizes = [cell.parts.get(name) or 0 for name in numbers]
        return (cell.sweep, cell.env, *texts[:2], *sizes, texts[2], cell.condition)

    return tuple(sorted(cells, key=rank))


def titles(cells: Sequence[Cell]) -> Mapping[Key, str]:
    """A name for each condition. Within a sweep and environment no two have the same name: where
    the parts do not distinguish them, the condition does."""
    varied = [
        part
        for part in dict.fromkeys(name for cell in cells for name in cell.parts)
        if len({str(cell.parts.get(part)) for cell in cells}) > 1
        # Environments have a column of their own.
        and part not in ("task", "model")
    ]
    short = {key(cell): cell.title(varied) for cell in cells}
    names = [(*origin[:2], text) for origin, text in short.items()]
    if "" in short.values() or len(set(names)) < len(names):
        return {key(cell): cell.condition for cell in cells}
    return short


class ConditionColumns:
    """The first columns of a table of conditions: sweep and environment where they differ, then
    the condition."""

    def __init__(self, cells: Sequence[Cell]) -> None:
        self._titles = titles(cells)
        values = {"sweep": {c.sweep for c in cells}, "environment": {c.env for c in cells}}
        self._origins = tuple(name for name, found in values.items() if len(found) > 1)

    @property
    def heads(self) -> tuple[str, ...]:
        return (*self._origins, "condition")

    def entries(self, cell: Cell) -> tuple[str, ...]:
        values = {"sweep": cell.sweep or "(none)", "environment": cell.env}
        return (*(values[name] for name in self._origins), self.title(cell))

    def title(self, cell: Cell) -> str:
        return self._titles[key(cell)]

"""Name the conditions of a page so that the names distinguish them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from rlhf_lab_analysis.comparison.cell import Cell
from rlhf_lab_analysis.comparison.families import order
from rlhf_lab_analysis.sources.conditions import NUMBERS, PARTS, fork_in_name

# A proxy and a reward distinguish conditions last: their names mean little by themselves.
ORDER = ("algo", "mode", "correction", *NUMBERS, "model", "task", "proxy", "reward")


@dataclass(frozen=True, eq=False)
class Group:
    """A condition in one environment and sweep. title: the parts in which it differs from the
    others of the page."""

    cell: Cell
    title: str

    def last(self, column: str) -> dict[int, float]:
        """The last number of each run, by seed: of its last judged version, of its last round if
        none was judged; NaN where there is none."""
        is_judged = any(map(len, self.cell.rows.values()))
        frames = self.cell.rows if is_judged else self.cell.recorded
        return {seed: last(frames[seed], column) for seed in self.cell.seeds}


def last(frame: pd.DataFrame, column: str) -> float:
    """The last value of a column; NaN where there is none."""
    return float(frame[column].iloc[-1]) if column in frame and len(frame) else float("nan")


def name_groups(cells: Sequence[Cell]) -> list[Group]:
    """The conditions in order, with names that distinguish them, as short as they can be."""
    groups: list[Group] = []
    for env in dict.fromkeys(cell.env for cell in cells):
        own = [cell for cell in cells if cell.env == env]
        names = known(own)
        own.sort(key=lambda cell: [rank(cell.parts.get(name)) for name in names])
        groups += map(Group, own, titles(own))
    return groups


def titles(cells: Sequence[Cell]) -> list[str]:
    """A name for each condition of an environment: the parts that differ, then more if need be."""
    differ = differing(cells) or ["mode"]
    names = [name for name in known(cells) if name in {"algo", *differ}]
    plain = [
        f"{title}{fork_in_name(cell.condition)}" if (title := cell.title(names)) else cell.condition
        for cell in cells
    ]
    for candidates in (plain, with_sweeps(plain, cells)):
        if len({*candidates}) == len(candidates):
            return candidates
    return with_sweeps([cell.condition for cell in cells], cells)


def with_sweeps(names: Sequence[str], cells: Sequence[Cell]) -> list[str]:
    return [
        f"{name} ({cell.sweep})" if cell.sweep else name
        for name, cell in zip(names, cells, strict=True)
    ]


def rank(part: Any) -> tuple[bool, float, Any]:
    """As `order`, with None and booleans as texts."""
    return order(str(part) if part is None or isinstance(part, bool) else part)


def known(cells: Sequence[Cell]) -> list[str]:
    """Every part of these conditions, those that distinguish most of them first."""
    return list(dict.fromkeys([*ORDER, *PARTS, *(name for cell in cells for name in cell.parts)]))


def differing(cells: Sequence[Cell]) -> list[str]:
    """The parts in which these conditions differ within an environment, in order."""
    envs = [[c for c in cells if c.env == env] for env in {cell.env for cell in cells}]
    return [
        name
        for name in known(cells)
        if any(len({str(cell.parts.get(name)) for cell in own}) > 1 for own in envs)
    ]

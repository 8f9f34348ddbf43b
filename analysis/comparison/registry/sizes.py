"""Order models and reward models by size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlhf_lab_analysis.comparison.cell import Cell
from rlhf_lab_analysis.comparison.families import parameters


def by_size(part: str, units: Mapping[Any, Sequence[Cell]]) -> list[Any]:
    """The values of a part, the smallest first: by the parameters in their names, then by the
    FLOPs of their runs, as equal updates of a larger model are more. units: conditions by value."""
    return sorted(
        sized(part, list(units)), key=lambda name: (parameters(name), flops(units[name][-1]))
    )


def sized(part: str, names: Sequence[Any]) -> list[Any]:
    """The options that are sizes of one thing. A reward may be of any kind: only those whose names
    end in a number of parameters, such as paper_proxy_1b, are reward models of some size."""
    return [name for name in names if part != "reward" or parameters(name)]


def flops(cell: Cell) -> float:
    """The mean FLOPs of its runs."""
    ends = cell.at_end("x/flops").values()
    return sum(ends) / len(ends)

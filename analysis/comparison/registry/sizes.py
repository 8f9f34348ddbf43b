"""Order models and reward models by size."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from rlhf_lab_analysis.comparison.cell import Cell

PARAMETERS = re.compile(r"(?<![a-z0-9.])(?P<number>\d+(\.\d+)?)(?P<unit>[mb])\b")


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


def parameters(name: str) -> float:
    """The millions of parameters that a name ends in: 410 of pythia_410m; 0 if it has none."""
    found = PARAMETERS.search(str(name))
    return float(found["number"]) * (1000 if found["unit"] == "b" else 1) if found else 0.0


def flops(cell: Cell) -> float:
    """The mean FLOPs of its runs."""
    ends = cell.at_end("x/flops").values()
    return sum(ends) / len(ends)

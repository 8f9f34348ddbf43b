"""Make the page's tables of results: each condition's final numbers, with intervals over seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlhf_lab_analysis.report.chosen import Chosen
from rlhf_lab_analysis.report.groups import Group
from rlhf_lab_analysis.report.series import LEVEL
from rlhf_lab_analysis.rounding import number_text
from rlhf_lab_analysis.sources.axes import STEP
from rlhf_lab_analysis.statistics.intervals import mean_ends
from rlhf_lab_analysis.words import (
    DEVICE_HOURS,
    UPDATES,
    VIRTUAL,
    WALL,
    head,
    is_never_negative,
    is_share,
)

COLUMNS = 5
COSTS = (VIRTUAL, WALL, UPDATES, DEVICE_HOURS, STEP)


@dataclass(frozen=True)
class NumberCell:
    """A number of a condition. note: its interval, or why there is none. lacking: seeds without
    it."""

    point: float
    note: str
    lacking: tuple[int, ...]

    @property
    def is_marked(self) -> bool:
        return bool(self.lacking) and not math.isnan(self.point)


@dataclass(frozen=True)
class ResultRow:
    """A condition with its numbers. group: its number in the page."""

    group: int
    title: str
    condition: str
    seeds: Sequence[int]
    cells: Sequence[NumberCell]


def results(groups: Sequence[Group], chosen: Chosen) -> dict[str, Any]:
    """A table for each environment, whose numbers are of one scale: means of the last judged
    version, and the cost."""
    metrics = (chosen.versions or chosen.rounds)[:COLUMNS]
    costs = [axis for axis in COSTS if axis in chosen.axes]
    # Wall-clock stands beside the quality: both are compared where modes differ.
    columns = [*metrics[:1], *costs[:1], *metrics[1:], *costs[1:]]
    tables: dict[str, list[ResultRow]] = {}
    for place, group in enumerate(groups):
        cells = [
            number_cell(group.last(name), "" if name in costs else name, bare=name in costs)
            for name in columns
        ]
        row = ResultRow(place, group.title, group.cell.condition, group.cell.seeds, cells)
        tables.setdefault(group.cell.env, []).append(row)
    heads = ["condition", "seeds", *map(head, columns)]
    return {"result_heads": heads, "results": list(tables.items())}


def number_cell(scores: Mapping[int, float], metric: str = "", bare: bool = False) -> NumberCell:
    """The mean over seeds with its t interval, of shares on log odds. Seeds without the number are
    left out, with a mark; NaN where there is none. bare: the mean alone."""
    known = [value for value in scores.values() if math.isfinite(value)]
    lacking = tuple(seed for seed, value in scores.items() if not math.isfinite(value))
    point = math.fsum(known) / len(known) if known else math.nan
    note = ""
    if known and not bare:
        note = f" {interval(known, point, metric)}" if len(known) > 1 else " one seed"
    return NumberCell(point, note, lacking)


def interval(values: Sequence[float], point: float, metric: str) -> str:
    """The interval of a mean, which has no negative end where the metric has no negative value."""
    is_within = is_share(metric) and all(0 <= value <= 1 for value in values)
    low, high = mean_ends(values, LEVEL, is_within)
    if is_never_negative(metric):
        low = max(low, min(0.0, point))
    return f"[{number_text(low)}, {number_text(high)}]"

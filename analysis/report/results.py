"""Make the page's tables of results: each condition's final numbers, with intervals over seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlhf_lab_analysis.report.chosen import Chosen
from rlhf_lab_analysis.report.groups import Group
from rlhf_lab_analysis.rounding import estimate_text, number_text
from rlhf_lab_analysis.sources.axes import STEP
from rlhf_lab_analysis.statistics.aggregates import aggregates, mean
from rlhf_lab_analysis.statistics.results import Estimate, Method, Options
from rlhf_lab_analysis.words import DEVICE_HOURS, UPDATES, VIRTUAL, WALL, head, is_share

OPTIONS = Options(method=Method.t)
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


def estimate_of(scores: Mapping[int, float], metric: str = "") -> Estimate | float:
    """The mean over seeds with its t interval, of shares on log odds; without one where there is a
    single seed, and NaN where there is none. Seeds without the number are left out, with a mark."""
    known = [value for value in scores.values() if math.isfinite(value)]
    if len(known) < 2:
        return known[0] if known else math.nan
    options = OPTIONS.for_shares(known) if is_share(metric) else OPTIONS
    estimates = aggregates({"mean": np.array(known)[:, None]}, options, {"mean": mean})
    return estimates["mean"]["mean"]


def number_cell(scores: Mapping[int, float], metric: str = "", bare: bool = False) -> NumberCell:
    """A number of a condition with its interval. bare: the mean alone."""
    estimate = estimate_of(scores, metric)
    lacking = tuple(seed for seed, value in scores.items() if not math.isfinite(value))
    if isinstance(estimate, float):
        note = "" if bare or math.isnan(estimate) else " one seed"
        return NumberCell(estimate, note, lacking)
    interval = estimate_text(estimate).removeprefix(number_text(estimate.point))
    is_noted = not (bare or math.isnan(estimate.point))
    return NumberCell(estimate.point, interval if is_noted else "", lacking)

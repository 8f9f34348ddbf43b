"""Make the data of the page's curves: each run's numbers at fewer points, each column once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd
from scipy import stats

from rlhf_lab_analysis.comparison.cell import Cell
from rlhf_lab_analysis.report.chosen import MEASURED_AXIS, Chosen
from rlhf_lab_analysis.report.groups import Group
from rlhf_lab_analysis.words import is_never_negative, is_share, label

LEVEL = 0.95
# Of the page's lines, in pixels.
LINE_WIDTH = 2
# Of the numbers in the page's data.
DIGITS = 6
# At most so many points of a run, and so many numbers in all, about seven characters each.
POINTS, NUMBERS, FEWEST = 300, 400_000, 20


class Pool:
    """Columns of numbers, each stored once: runs of a condition have the same axes."""

    def __init__(self) -> None:
        self.columns: list[list[Any]] = []
        self._known: dict[tuple[Any, ...], int] = {}

    def place(self, column: Sequence[Any]) -> int:
        """The number of a column."""
        key = tuple(column)
        if key not in self._known:
            self._known[key] = len(self.columns)
            self.columns.append(list(column))
        return self._known[key]


def curve_data(groups: Sequence[Group], chosen: Chosen, ranked: Sequence[int]) -> dict[str, Any]:
    """The numbers of all curves, for the page's script. ranked: the conditions, those first that
    are shown first."""
    points, pool = points_a_run(groups, chosen), Pool()
    envs = list(dict.fromkeys(group.cell.env for group in groups))
    ranks = {place: rank for rank, place in enumerate(ranked)}
    entries = [
        {
            **{"env": envs.index(group.cell.env), "title": group.title, "rank": ranks[place]},
            **{"sweep": group.cell.sweep, "condition": group.cell.condition},
            **{"colour": group.look.colour, "dash": dash_of(group.look.line)},
            "marker": group.look.marker,
            "runs": [run_data(group.cell, seed, chosen, points, pool) for seed in group.cell.seeds],
        }
        for place, group in enumerate(groups)
    ]
    return {
        "level": LEVEL,
        "t": quantiles(groups),
        "axes": [{"id": a, "label": label(a), "measured": a == MEASURED_AXIS} for a in chosen.axes],
        "metrics": [
            *metric_entries(chosen.versions, "versions"),
            *metric_entries(chosen.rounds, "rounds"),
        ],
        "envs": envs,
        "groups": entries,
        "pool": pool.columns,
    }


def dash_of(line: Any) -> str:
    """matplotlib's line style as stroke-dasharray, whose unit is a pixel and not the line's width;
    "" for a whole line."""
    return "" if line == "-" else " ".join(f"{LINE_WIDTH * part:g}" for part in line[1])


def quantiles(groups: Sequence[Group]) -> dict[str, Any]:
    """Student's t of the page's level by the number of seeds."""
    most = max((len(group.cell.seeds) for group in groups), default=1)
    return {str(n): short(stats.t.ppf((1 + LEVEL) / 2, n - 1)) for n in range(2, most + 1)}


def metric_entries(metrics: Sequence[str], of: str) -> list[dict[str, Any]]:
    """Metrics as the page's script knows them; of: the table that they are of, least: the value
    below which there is none."""
    return [
        {"id": name, "label": label(name), "of": of, "share": is_share(name)}
        | ({"least": 0} if is_never_negative(name) else {})
        for name in metrics
    ]


def points_a_run(groups: Sequence[Group], chosen: Chosen) -> int:
    """How many points of a run the page has room for."""
    runs = sum(len(group.cell.seeds) for group in groups)
    columns = len(chosen.versions) + len(chosen.rounds) + 2 * len(chosen.axes)
    return max(FEWEST, min(POINTS, NUMBERS // max(1, runs * columns)))


def run_data(cell: Cell, seed: int, chosen: Chosen, points: int, pool: Pool) -> dict[str, Any]:
    axes, versions, rounds = chosen.axes, chosen.versions, chosen.rounds
    return {
        "seed": seed,
        "id": str(cell.runs[seed]["run"]),
        "versions": columns_of(cell.rows[seed], (*axes, *versions), points, pool),
        "rounds": columns_of(cell.recorded[seed], (*axes, *rounds), points, pool),
    }


def columns_of(
    frame: pd.DataFrame, names: Sequence[str], points: int, pool: Pool
) -> dict[str, int]:
    """The number in the pool of each column that has some number."""
    there = [name for name in dict.fromkeys(names) if name in frame]
    # All columns at once, of which there are many.
    is_known = frame[there].notna().any()
    values = frame[there].iloc[even_indices(len(frame), points)].to_numpy(float, na_value=math.nan)
    return {
        name: pool.place([short(value) for value in column.tolist()])
        for name, column in zip(there, values.T, strict=True)
        if is_known[name]
    }


def thinning(groups: Sequence[Group], chosen: Chosen) -> str:
    """A note on curves that have fewer points than were measured; "" if none has."""
    points = points_a_run(groups, chosen)
    frames = [
        frame for g in groups for of in (g.cell.rows, g.cell.recorded) for frame in of.values()
    ]
    longest = max(map(len, frames), default=0)
    if longest <= points:
        return ""
    return (
        f"Curves are thinned to {points} points a run, evenly, with the first and the last (the "
        f"longest run recorded {longest}); tables and verdicts are of all."
    )


def short(value: Any) -> float | int | None:
    """A number with the digits that a curve needs; None for NaN and infinity."""
    number = float(value)
    if not math.isfinite(number):
        return None
    rounded = float(f"{number:.{DIGITS}g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded


def even_indices(length: int, most: int) -> list[int]:
    """At most so many of the indices 0..length-1, evenly spread, with the first and the last."""
    if length <= most:
        return list(range(length))
    return sorted({round(step * (length - 1) / (most - 1)) for step in range(most)})

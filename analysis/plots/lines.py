"""The numbers that figures show of conditions: each seed's, their mean, and its interval."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import is_numeric_dtype

from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.comparison.cell import Cell
from rlhf_lab_analysis.statistics.arrays import Floats
from rlhf_lab_analysis.statistics.intervals import logit_ends, t_ends
from rlhf_lab_analysis.words import (
    ACCURACY,
    COMPLETIONS,
    DEVICE_HOURS,
    FLOPS,
    GOLD,
    KL,
    PROXY,
    UPDATES,
    VIRTUAL,
    WALL,
    WIN_RATE,
    is_never_negative,
    is_share,
)

REWARD = "reward/mean"
# Short names of x and y.
AXES: Mapping[str, str] = {
    "updates": UPDATES,
    "rounds": "x/rounds",
    "completions": COMPLETIONS,
    "tokens": "x/trained_tokens",
    "flops": FLOPS,
    "device_hours": DEVICE_HOURS,
    "wall_clock": WALL,
    "virtual": VIRTUAL,
    "step": "x/step",
    "kl": KL,
    "perplexity": "ppl/sft_paper",
}
METRICS: Mapping[str, str] = {
    "win_rate": WIN_RATE,
    "accuracy": ACCURACY,
    "gold": GOLD,
    "proxy": PROXY,
    "reward": REWARD,
    "kl": KL,
    "perplexity": "ppl/sft_paper",
}
# What is drawn unless a metric is named: the first that all conditions have.
DEFAULT = (ACCURACY, WIN_RATE, GOLD, REWARD)
# Seeds from which on a mean has an interval.
SEEDS = 3
LEVEL = 0.95
# Of recorded rounds, which are noisy, an end is the mean of this share of them.
LAST_SHARE = 0.1
# x and y of a seed's points, by version or round.
Points = Mapping[int, pd.DataFrame]


@dataclass(frozen=True, eq=False)
class Line:
    """One condition. seeds: the points of each. x, y: means over seeds at the points that all have,
    each (P,). low, high: ends of 95% intervals of y, (P,), NaN below three seeds."""

    name: str
    cell: Cell
    seeds: Points
    x: Floats
    y: Floats
    low: Floats
    high: Floats

    @property
    def has_interval(self) -> bool:
        return len(self.seeds) >= SEEDS


def line(name: str, cell: Cell, points: Points, metric: str) -> Line:
    """A condition with its means. metric: what y is, "" for differences. Raises UserError where
    seeds have no point in common."""
    shared = sorted(set.intersection(*(set(rows.index) for rows in points.values())))
    if not shared:
        raise UserError(f"{name}: its seeds {list(points)} have no version or round in common")
    xy_SP2 = np.array(
        [
            (rows if list(rows.index) == shared else rows.loc[shared]).to_numpy()
            for rows in points.values()
        ]
    )
    x_SP, y_SP = xy_SP2[..., 0], xy_SP2[..., 1]
    low_P, high_P = interval(y_SP, metric)
    return Line(name, cell, points, x_SP.mean(axis=0), y_SP.mean(axis=0), low_P, high_P)


def interval(y_SP: Floats, metric: str) -> tuple[Floats, Floats]:
    """Ends of Student's 95% interval of the mean over seeds at each point; of shares on log odds,
    so that it stays within 0 to 1, and with no negative end of what is never negative. NaN below
    three seeds."""
    seeds, points = y_SP.shape
    if seeds < SEEDS:
        return np.full(points, np.nan), np.full(points, np.nan)
    without_SP = (y_SP.sum(axis=0) - y_SP) / (seeds - 1)
    mean_P = y_SP.mean(axis=0)
    if is_share(metric) and y_SP.min() >= 0 and y_SP.max() <= 1:
        return logit_ends(mean_P, [without_SP], LEVEL)
    low_P, high_P = t_ends(mean_P, [without_SP], LEVEL)
    if is_never_negative(metric):
        low_P = np.maximum(low_P, np.minimum(0.0, mean_P))
    return low_P, high_P


def is_recorded(cell: Cell, y: str) -> bool:
    """Whether a metric is of training rounds, and not of judged versions."""
    return not all(y in rows and rows[y].notna().any() for rows in cell.rows.values())


def points_of(cell: Cell, x: str, y: str) -> dict[int, pd.DataFrame]:
    """x and y of each seed where both are finite numbers, by version or round; empty frames of
    seeds that lack a column."""
    recorded = is_recorded(cell, y)
    frames = cell.recorded if recorded else cell.rows
    return {
        seed: pair(rows, x, y, numbers(rows) if recorded else rows["version"].to_numpy(int))
        for seed, rows in frames.items()
    }


def pair(rows: pd.DataFrame, x: str, y: str, index: Any) -> pd.DataFrame:
    """Two columns where both are finite numbers."""
    if x not in rows or y not in rows:
        return pd.DataFrame({"x": [], "y": []})
    x_P, y_P = rows[x].to_numpy(float), rows[y].to_numpy(float)
    kept = np.isfinite(x_P) & np.isfinite(y_P)
    return pd.DataFrame({"x": x_P[kept], "y": y_P[kept]}, index=index[kept])


def numbers(rows: pd.DataFrame) -> NDArray[np.int_]:
    """The number of each round; rows without one are counted."""
    found = rows.get("x/rounds")
    if found is None or found.isna().any() or not found.is_unique:
        return np.arange(1, len(rows) + 1)
    rounds: NDArray[np.int_] = found.to_numpy(int)
    return rounds


def has(cell: Cell, x: str, y: str) -> bool:
    """Whether all seeds have finite numbers of both together."""
    return all(len(points) for points in points_of(cell, x, y).values())


def curve(cell: Cell, name: str, x: str, y: str) -> Line:
    """y over x at all versions or rounds where both are finite."""
    return line(name, cell, points_of(cell, x, y), y)


def end(cell: Cell, name: str, x: str, y: str) -> Line:
    """The last point alone: of judged versions the last one, on more prompts where it was judged so
    (eval.last_prompts); of rounds the mean of y over the last tenth."""
    points = points_of(cell, x, y)
    recorded = is_recorded(cell, y)
    for seed, found in points.items():
        if recorded:
            last = found["y"].tail(math.ceil(LAST_SHARE * len(found))).mean()
            points[seed] = pd.DataFrame({"x": [found["x"].iloc[-1]], "y": [last]})
        else:
            rows = cell.at_the_end(seed)
            own = pair(rows, x, y, np.arange(len(rows)))
            points[seed] = own.tail(1).reset_index(drop=True)
    return line(name, cell, points, y)


def less(one: Line, base: Line) -> Line:
    """A condition's y less that of another, seed by seed, at the points that both have. Raises
    UserError where no seed or point is common."""
    points = {}
    for seed in sorted(set(one.seeds) & set(base.seeds)):
        own, other = one.seeds[seed], base.seeds[seed]
        shared = own.index.intersection(other.index)
        if len(shared):
            difference = own.loc[shared, "y"] - other.loc[shared, "y"]
            points[seed] = pd.DataFrame({"x": own.loc[shared, "x"], "y": difference})
    if not points:
        raise UserError(
            f"--diff: {one.name} has seeds {list(one.seeds)}, {base.name} {list(base.seeds)}: "
            "a difference takes runs of equal seeds with a version or round in common"
        )
    return line(one.name, one.cell, points, "")


def column(name: str, short: Mapping[str, str], cells: Sequence[Cell]) -> str:
    """The column of a metric or axis by its short or whole name. Raises UserError for one that no
    condition has."""
    found = short.get(name, name)
    frames = [rows for cell in cells for rows in (*cell.rows.values(), *cell.recorded.values())]
    if not any(found in rows and is_numeric_dtype(rows[found]) for rows in frames):
        known = sorted({key for rows in frames for key in rows.select_dtypes("number")})
        near = get_close_matches(name, [*short, *known], n=3)
        what = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(known)}"
        raise UserError(f"{name}: no run has such numbers; {what}")
    return found


def default_metric(cells: Sequence[Cell]) -> str:
    """The first of DEFAULT that every condition has. Raises UserError if there is none."""
    for name in DEFAULT:
        if all(has(cell, name, name) for cell in cells):
            return name
    raise UserError(f"no metric of {', '.join(DEFAULT)} is in all conditions: pass -y METRIC")

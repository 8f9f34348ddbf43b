"""When the runs of conditions over staleness and learning rate collapse, by their rounds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import pandas as pd

from rlhf_lab_analysis.comparison.cell import Cell
from rlhf_lab_analysis.statistics.boundary import (
    Trial,
    grid_of,
    reason_against,
    slope_of,
    thresholds_of,
)
from rlhf_lab_analysis.statistics.collapse import DEFAULT, Times, collapse_times
from rlhf_lab_analysis.statistics.curves import RunCurve
from rlhf_lab_analysis.statistics.results import Basis, Estimate, Options
from rlhf_lab_analysis.words import UPDATES

REWARD = "reward/mean"
# Staleness and learning rate.
Place: TypeAlias = tuple[float, float]


def rewards_of(cell: Cell) -> dict[int, RunCurve]:
    """The reward of each recorded round over updates, by seed. Rounds without a reward are left out
    where rows are missing; what is no finite number is a collapse and stays."""
    found = {}
    for seed, rows in cell.recorded.items():
        if {UPDATES, REWARD} <= set(rows):
            kept: pd.DataFrame = rows[[UPDATES, REWARD]][rows[UPDATES].notna()]
            found[seed] = RunCurve(kept[UPDATES].to_numpy(float), kept[REWARD].to_numpy(float))
    return found


def times_of(cell: Cell) -> Times | None:
    """When the run of each seed collapses; None where runs are shorter than the window of the rule,
    or have no recorded rewards."""
    rewards = rewards_of(cell)
    if min((len(curve.x_P) for curve in rewards.values()), default=0) < DEFAULT.window:
        return None
    return collapse_times(rewards)


def trials_of(fallen: Mapping[Place, Times | None]) -> list[Trial]:
    """Which runs collapsed, of conditions by staleness and rate."""
    return [
        Trial(seed, staleness, rate, bool(has_collapsed))
        for (staleness, rate), times in fallen.items()
        if times is not None
        for seed, has_collapsed in zip(times.seeds, times.reached_S, strict=True)
    ]


def slope_estimate(trials: Sequence[Trial], than: float, options: Options) -> Estimate:
    """The slope of the boundary less `than`, with its profile-likelihood interval at the level of
    the options. Where the runs do not show a boundary it is not a number, and a warning has the
    reason."""
    seeds = len({one.seed for one in trials})
    if reason := reason_against(thresholds_of(trials)[0]):
        basis = Basis((seeds,), 1, options, (reason,))
        return Estimate("slope", math.nan, -math.inf, math.inf, basis)
    grid = grid_of(trials)
    basis = Basis((seeds,), 1, options, grid.warnings)
    slope = slope_of(grid, options.level)
    return Estimate("slope", slope.point - than, slope.low - than, slope.high - than, basis)

"""The boundary between stable and collapsed runs over staleness S and learning rate.

Stale samples bound the rate by a constant over S (arXiv:2607.01083: eta << R_batch / (S G)), so
that the largest stable rate falls as 1 / S where staleness binds, and is flat below that. Fitted is
a line of its logarithm over log(S + 1), whose slope is -1 by the law and 0 where it is flat. Each
(seed, S) is one threshold, known to lie between two rates of the grid.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.statistics.arrays import Floats
from rlhf_lab_analysis.statistics.thresholds import Censored, profile_interval

# Values of S with a threshold between two rates that a slope needs.
LEAST_STALENESS = 2


@dataclass(frozen=True)
class Trial:
    """A run: its seed, staleness and learning rate, and whether it collapsed."""

    seed: int
    staleness: float
    rate: float
    has_collapsed: bool


@dataclass(frozen=True)
class Threshold:
    """Between which rates the largest stable rate of a seed at a staleness lies: 0 if no run was
    stable, infinite if none collapsed."""

    seed: int
    staleness: float
    stable: float
    collapsed: float


@dataclass(frozen=True, eq=False)
class StabilityGrid:
    """Thresholds as logarithms of rates. line_N2: the design of the line in log(S + 1)."""

    data: Censored
    line_N2: Floats
    staleness_N: Floats
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class Interval:
    """A number and the ends of its profile-likelihood interval."""

    point: float
    low: float
    high: float


@dataclass(frozen=True)
class Boundary:
    """The largest stable rate by staleness. slope: of its logarithm on log(S + 1), whose law is -1.
    rates: at each S the rate of the fitted line."""

    slope: Interval
    rates: dict[float, Interval]
    warnings: tuple[str, ...]


def boundary(trials: Sequence[Trial], level: float = 0.95) -> Boundary:
    """Fit the boundary to collapsed and stable runs. Raises UserError where the grid does not hold
    it (`grid_of`)."""
    grid = grid_of(trials)
    rates = {}
    for value in np.unique(grid.staleness_N):
        # With S as origin the first coefficient is the threshold there.
        moved = grid.line_N2 - np.array([0.0, np.log(value + 1)])
        ends = np.exp(profile_interval(grid.data, moved, 0, level))
        rates[float(value)] = Interval(*ends.tolist())
    return Boundary(slope_of(grid, level), rates, grid.warnings)


def slope_of(grid: StabilityGrid, level: float) -> Interval:
    """The slope of the line alone, with its interval."""
    return Interval(*profile_interval(grid.data, grid.line_N2, 1, level))


def thresholds_of(trials: Sequence[Trial]) -> tuple[list[Threshold], tuple[str, ...]]:
    """The threshold of each seed and S: below its smallest rate that collapsed, above the largest
    stable one below that. Warnings name those that are stable above a rate that collapsed."""
    groups: dict[tuple[float, int], list[Trial]] = {}
    for trial in trials:
        groups.setdefault((trial.staleness, trial.seed), []).append(trial)
    found, odd = [], []
    for (staleness, seed), runs in sorted(groups.items()):
        fallen = min((run.rate for run in runs if run.has_collapsed), default=math.inf)
        stable = [run.rate for run in runs if not run.has_collapsed]
        found.append(
            Threshold(seed, staleness, max((r for r in stable if r < fallen), default=0.0), fallen)
        )
        odd += [f"S={staleness:g} seed {seed}"] if max(stable, default=0.0) > fallen else []
    text = f"stable above a rate that collapsed, which is taken for the boundary: {', '.join(odd)}"
    return found, (text,) if odd else ()


def reason_against(thresholds: Sequence[Threshold]) -> str:
    """Why no boundary can be fitted; empty if one can."""
    known = {one.staleness for one in thresholds if one.stable > 0 and one.collapsed < math.inf}
    if len(known) >= LEAST_STALENESS:
        return ""
    stable = sum(one.collapsed == math.inf for one in thresholds)
    fallen = sum(one.stable == 0 for one in thresholds)
    return (
        f"{len(known)} values of S have stable and collapsed runs of one seed, {LEAST_STALENESS} "
        f"are needed (of {len(thresholds)} pairs of seed and S, {stable} have no collapse and "
        f"{fallen} no stable run): train at larger or smaller rates"
    )


def grid_of(trials: Sequence[Trial]) -> StabilityGrid:
    """The thresholds of these runs. Raises UserError where they do not hold the boundary
    (`reason_against`)."""
    thresholds, warnings = thresholds_of(trials)
    if reason := reason_against(thresholds):
        raise UserError(reason)
    staleness_N = np.array([one.staleness for one in thresholds])
    with np.errstate(divide="ignore"):
        data = Censored(
            np.log([one.stable for one in thresholds]),
            np.log([one.collapsed for one in thresholds]),
        )
    x_N = np.log(staleness_N + 1)
    return StabilityGrid(data, np.stack([np.ones_like(x_N), x_N], axis=1), staleness_N, warnings)

"""Fit the law of quality over compute of ScaleRL (arXiv:2510.13786), with intervals over seeds.

gain(C) = A / (1 + (C_mid / C)^B), the gain over the start at compute C: A is the ceiling, C_mid the
compute of half of it, B how steeply it rises. One law is fitted to the points of all seeds by least
squares; intervals are Student's t with the jackknife's standard error over seeds, of logarithms.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from scipy.optimize import least_squares
from scipy.stats import t as student

from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.statistics.arrays import Floats
from rlhf_lab_analysis.statistics.curves import RunCurve

LEAST_SEEDS, LEAST_POINTS = 3, 4
# A ceiling whose interval is wider than this ratio is not identified.
WIDEST = 1.5
STEEPNESSES = (0.5, 1.0, 2.0, 4.0)


@dataclass(frozen=True)
class Law:
    """ceiling: A, in the unit of the gain. middle: C_mid, in that of the axis. steepness: B."""

    ceiling: float
    middle: float
    steepness: float

    def at(self, x: Floats) -> Floats:
        """The gain at compute above 0."""
        gain: Floats = self.ceiling / (1 + (self.middle / x) ** self.steepness)
        return gain

    @property
    def logs(self) -> Floats:
        logs: Floats = np.log([self.ceiling, self.middle, self.steepness])
        return logs


@dataclass(frozen=True)
class FittedLaw:
    """A law with the interval of each parameter, in the order of `Law`. held_out: mean absolute
    error on the compute that another fit did not see, and the share of compute that it saw. reason:
    why the ceiling is not identified; "" where it is."""

    law: Law
    intervals: tuple[tuple[float, float], ...]
    seeds: int
    held_out: tuple[float, float]
    reason: str = ""


class Moves(StrEnum):
    """What one condition has other than another: the ceiling, the compute that it takes to get
    there, both, or neither that these seeds show."""

    ceiling = "the ceiling"
    speed = "the speed"
    both = "the ceiling and the speed"
    nothing = "neither is shown"


@dataclass(frozen=True)
class LawChange:
    """One law against another, over common seeds. ratios: of ceiling, middle and steepness, each
    as point, low and high; their intervals hold together (Bonferroni)."""

    ratios: tuple[tuple[float, float, float], ...]
    moves: Moves
    seeds: int


def fit_law(curves: Sequence[RunCurve]) -> Law:
    """The law of least squared error over all points of gains. The best of several starts counts.

    Raises UserError for compute that is not above 0, and where nothing was gained.
    """
    x = np.concatenate([curve.x_P for curve in curves])
    y = np.concatenate([curve.y_P for curve in curves])
    if (x <= 0).any():
        raise UserError("a law needs compute above 0: leave out version 0, whose gain is 0")
    if y.max() <= 0:
        raise UserError("nothing was gained over the start, so that there is no law to fit")

    def errors(logs: Floats) -> Floats:
        found: Floats = Law(*np.exp(logs)).at(x) - y
        return found

    half = float(np.median(x))
    starts = [np.log([y.max(), half, steepness]) for steepness in STEEPNESSES]
    # Steepness from 0.05 to 20, ceilings up to 100 times what was seen: no data decide beyond.
    low = np.log([y.max() * 0.1, x.min() * 1e-3, 0.05])
    high = np.log([y.max() * 100, x.max() * 1e3, 20.0])
    found = [least_squares(errors, start, bounds=(low, high)) for start in starts]
    best = min(found, key=lambda one: float(one.cost))
    return Law(*(float(value) for value in np.exp(best.x)))


def fitted_law(curves: Mapping[int, RunCurve], level: float = 0.95, seen: float = 0.5) -> FittedLaw:
    """The law of a condition. curves: gains by seed. seen: share of the compute that the fit sees
    whose error on the rest is reported.

    Raises UserError for fewer than 3 seeds, or fewer than 4 points of a seed.
    """
    require_enough(curves)
    law = fit_law(list(curves.values()))
    half_widths = margins(jackknifed(curves), level)
    ends = [np.exp(law.logs + sign * half_widths) for sign in (-1, 1)]
    intervals = tuple((float(low), float(high)) for low, high in zip(*ends, strict=True))
    reason = unidentified(law, intervals, max(curve.end for curve in curves.values()))
    return FittedLaw(law, intervals, len(curves), (held_out(curves, seen), seen), reason)


def compare_laws(
    first: Mapping[int, RunCurve], second: Mapping[int, RunCurve], level: float = 0.95
) -> LawChange:
    """The law of the first over that of the second, in pairs of common seeds.

    The speed is the compute of half the ceiling. Raises UserError as `fitted_law` does.
    """
    seeds = sorted(set(first) & set(second))
    pair = [{seed: one[seed] for seed in seeds} for one in (first, second)]
    for one in pair:
        require_enough(one)
    logs = [fit_law(list(one.values())).logs for one in pair]
    change = logs[0] - logs[1]
    both_MT = jackknifed(pair[0]) - jackknifed(pair[1])
    # Two statements are made, of the ceiling and of the speed.
    half_widths = margins(both_MT, 1 - (1 - level) / 2)
    rows = (np.exp(change), np.exp(change - half_widths), np.exp(change + half_widths))
    is_moved = [bool(abs(change[place]) > half_widths[place]) for place in (0, 1)]
    found = {
        (True, False): Moves.ceiling,
        (False, True): Moves.speed,
        (True, True): Moves.both,
        (False, False): Moves.nothing,
    }[is_moved[0], is_moved[1]]
    ratios = tuple((float(p), float(low), float(high)) for p, low, high in zip(*rows, strict=True))
    return LawChange(ratios, found, len(seeds))


def require_enough(curves: Mapping[int, RunCurve]) -> None:
    if len(curves) < LEAST_SEEDS:
        raise UserError(f"{len(curves)} seeds: a law with intervals needs at least {LEAST_SEEDS}")
    for seed, curve in curves.items():
        if len(curve.x_P) < LEAST_POINTS:
            raise UserError(
                f"seed {seed} has {len(curve.x_P)} points: a law needs {LEAST_POINTS} besides the "
                "start (eval.snapshots)"
            )


def jackknifed(curves: Mapping[int, RunCurve]) -> Floats:
    """The logarithms of the parameters without each seed in turn: a row for each, MT."""
    seeds = list(curves)
    return np.array(
        [fit_law([curves[seed] for seed in seeds if seed != left]).logs for left in seeds]
    )


def margins(without_MT: Floats, level: float) -> Floats:
    """Half the width of each parameter's interval: t times the jackknife's standard error."""
    count = len(without_MT)
    spread = without_MT - without_MT.mean(axis=0)
    error = np.sqrt((count - 1) / count * (spread**2).sum(axis=0))
    found: Floats = float(student.ppf((1 + level) / 2, count - 1)) * error
    return found


def unidentified(law: Law, intervals: Sequence[tuple[float, float]], end: float) -> str:
    """Why these curves do not show where they end; "" if they do."""
    if law.middle > end:
        return f"half of the ceiling lies at {law.middle:.3g}, beyond the last point at {end:.3g}"
    low, high = intervals[0]
    if high / low > WIDEST:
        return f"the ceiling is only known to lie within {low:.3g} to {high:.3g}"
    return ""


def held_out(curves: Mapping[int, RunCurve], seen: float) -> float:
    """The mean absolute error beyond a share of the compute, of the law of what lies before; NaN
    where too few points lie on either side."""
    limit = seen * max(curve.end for curve in curves.values())
    before = [
        RunCurve(curve.x_P[curve.x_P <= limit], curve.y_P[curve.x_P <= limit])
        for curve in curves.values()
    ]
    after = [(c.x_P[c.x_P > limit], c.y_P[c.x_P > limit]) for c in curves.values()]
    if any(len(curve.x_P) < 2 for curve in before) or not any(len(x) for x, _ in after):
        return math.nan
    law = fit_law(before)
    return float(np.mean(np.concatenate([np.abs(law.at(x) - y) for x, y in after])))

"""Find when each run first reaches a target, by its best value so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.statistics.arrays import Floats
from rlhf_lab_analysis.statistics.curves import RunCurve


@dataclass(frozen=True)
class Target:
    """A value of a metric to reach, and the axis on which the time to it is measured.

    rises: the metric has to reach the value from below, else from above.
    """

    metric: str
    value: float
    axis: str
    rises: bool = True


@dataclass(frozen=True, eq=False)
class Times:
    """The time at which each seed reached the target; for a seed that did not, the run's end."""

    target: Target
    seeds: tuple[int, ...]
    time_S: Floats
    reached_S: NDArray[np.bool_]
    warnings: tuple[str, ...]

    def only(self, seeds: Sequence[int]) -> Times:
        """The times of these seeds, each of which must have one."""
        places = [self.seeds.index(seed) for seed in seeds]
        kept = (self.time_S[places], self.reached_S[places])
        return Times(self.target, tuple(seeds), *kept, self.warnings)

    @property
    def followed(self) -> float:
        """The end of the shortest run that did not reach it; infinite if all did."""
        return float(np.where(self.reached_S, np.inf, self.time_S).min())

    @property
    def horizon(self) -> float:
        """Up to where every run is known, or the latest time if all reached it."""
        return horizon_of(self)


def horizon_of(*all_times: Times) -> float:
    """Up to where every run of all is known, or the latest time if all reached their target."""
    followed = min(times.followed for times in all_times)
    latest = max(float(times.time_S.max()) for times in all_times)
    return min(followed, latest)


def first_crossing(curve: RunCurve, target: Target) -> float | None:
    """Where the best value so far first is the target, or None.

    Between two points the best value is taken to rise on a straight line.
    """
    sign = 1.0 if target.rises else -1.0
    best = np.maximum.accumulate(sign * curve.y_P)
    if best[-1] < sign * target.value:
        return None
    place = int(np.argmax(best >= sign * target.value))
    if place == 0:
        return curve.begin
    ends = slice(place - 1, place + 1)
    return float(np.interp(sign * target.value, best[ends], curve.x_P[ends]))


def times_to(target: Target, curves: Mapping[int, RunCurve]) -> Times:
    """The times of all seeds. Raises UserError if there are none, or x begins below 0."""
    if not curves:
        raise UserError(f"no runs to look for {target.metric}={target.value} in: pass some")
    seeds = tuple(sorted(curves))
    found = {seed: first_crossing(curves[seed], target) for seed in seeds}
    notes = []
    if early := [seed for seed in seeds if found[seed] == curves[seed].begin]:
        notes.append(f"at the target from their first point on: seeds {early}")
    if missed := [seed for seed in seeds if found[seed] is None]:
        notes.append(f"never at the target, so counted as later than their end: seeds {missed}")
        if len({curves[seed].end for seed in missed}) > 1:
            notes.append("the runs that miss it end at different points: the share depends on them")
    if min(curves[seed].begin for seed in seeds) < 0:
        raise UserError(f"{target.axis} begins below 0: pass the time since the start of the run")
    reached = np.array([found[seed] is not None for seed in seeds])
    times = [curves[seed].end if (time := found[seed]) is None else time for seed in seeds]
    return Times(target, seeds, np.array(times), reached, tuple(notes))

"""Find the round at which a run collapses, from its reward in each round.

The definition is one of this package; no paper's definition is followed. It depends on the run
alone: no threshold in units of reward is given, so that it holds for any reward.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.statistics.arrays import Floats
from rlhf_lab_analysis.statistics.curves import RunCurve


@dataclass(frozen=True)
class CollapseRule:
    """When a run has collapsed.

    window: rounds of the running mean, each of which counts its round and those before it. share:
    of what the best running mean so far had gained over the first one, how much must be lost.
    noise: standard deviations of the running mean by which it must lie below the best as well, so
    that a run that gained nothing does not collapse by chance. lasting: rounds that must follow
    below the level, up to the end of the run.

    With the defaults 0 to 0.2% of runs of 16 to 200 rounds of normal noise alone collapse.
    """

    window: int = 4
    share: float = 0.5
    noise: float = 5.0
    lasting: int = 3


DEFAULT = CollapseRule()


def running_mean(values_P: Floats, window: int) -> Floats:
    """The mean of each value and up to window - 1 before it: (P,)."""
    sums = np.concatenate([[0.0], np.cumsum(values_P)])
    ends = np.arange(1, len(values_P) + 1)
    begins = np.maximum(ends - window, 0)
    return np.asarray((sums[ends] - sums[begins]) / (ends - begins))


def collapse_at(reward_P: Floats, rule: CollapseRule = DEFAULT) -> int | None:
    """The index of the round at which a run collapses, None if it does not.

    It is the first round whose running mean lies below the level for it, where no later one reaches
    that level again: the level is the best running mean so far, less `share` of what it had gained
    over the first full window, and less `noise` standard deviations at least. Their size is that of
    successive differences over sqrt(2 window). A reward that is not finite is a collapse there.
    Raises UserError for a run that is shorter than the window.
    """
    if len(reward_P) < rule.window:
        raise UserError(
            f"{len(reward_P)} rounds are fewer than window={rule.window}: pass a smaller window"
        )
    bad = np.flatnonzero(~np.isfinite(reward_P))
    known_P = reward_P[: int(bad[0])] if len(bad) else reward_P
    found = fall_of(known_P, rule) if len(known_P) >= rule.window else None
    return int(bad[0]) if found is None and len(bad) else found


def fall_of(reward_P: Floats, rule: CollapseRule) -> int | None:
    """The same of finite rewards."""
    begin = rule.window - 1
    mean_P = running_mean(reward_P, rule.window)[begin:]
    best_P = np.maximum.accumulate(mean_P)
    steps = np.diff(reward_P)
    sigma = float(np.sqrt((steps**2).mean() / (2 * rule.window))) if len(steps) else 0.0
    level_P = best_P - np.maximum(rule.share * (best_P - mean_P[0]), rule.noise * sigma)
    # The highest running mean that follows, of which that round itself is one.
    later_P = np.maximum.accumulate(mean_P[::-1])[::-1]
    left_P = np.arange(len(mean_P))[::-1]
    fallen = np.flatnonzero((later_P < level_P) & (left_P >= rule.lasting))
    return begin + int(fallen[0]) if len(fallen) else None


@dataclass(frozen=True, eq=False)
class Times:
    """Where the run of each seed collapses; of a run that does not, its end."""

    seeds: tuple[int, ...]
    time_S: Floats
    reached_S: NDArray[np.bool_]


def collapse_times(rewards: Mapping[int, RunCurve], rule: CollapseRule = DEFAULT) -> Times:
    """When the run of each seed collapses. rewards: the reward of each round over some axis."""
    if not rewards:
        raise UserError("no runs to look for a collapse in: pass some")
    seeds = tuple(sorted(rewards))
    places = [collapse_at(rewards[seed].y_P, rule) for seed in seeds]
    ends = [-1 if place is None else place for place in places]
    times = [rewards[seed].x_P[end] for seed, end in zip(seeds, ends, strict=True)]
    return Times(seeds, np.array(times), np.array([place is not None for place in places]))

"""The collapse of a run: by hand, and what is no collapse."""

from __future__ import annotations

import numpy as np
import pytest

from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.statistics.collapse import (
    DEFAULT,
    CollapseRule,
    collapse_at,
    collapse_times,
    running_mean,
)
from rlhf_lab_analysis.statistics.curves import RunCurve

PLAIN = CollapseRule(window=2, share=0.5, noise=0, lasting=1)
FALLS = [0.0, 0, 1, 1, 1, 1, 0, 0, 0, 0]


def at(rewards: list[float], rule: CollapseRule = PLAIN) -> int | None:
    return collapse_at(np.array(rewards, dtype=float), rule)


def test_the_running_mean_looks_back_and_not_ahead() -> None:
    made = running_mean(np.array([2.0, 4, 6, 8]), 3)
    assert made.tolist() == [2, 3, 4, 6]


def test_a_collapse_by_hand() -> None:
    # Running means of two from round 1 on: 0, .5, 1, 1, 1, .5, 0, 0, 0. The best is 1, gained 1.
    # Half of it lost is below .5, first in round 7; four tenths is below .6, first in round 6.
    assert at(FALLS) == 7
    assert at(FALLS, CollapseRule(2, 0.4, 0, 1)) == 6


def test_a_run_that_recovers_has_not_collapsed() -> None:
    assert at([*FALLS, 1, 1]) is None
    # Up to .5 again is up to the level, and no lower.
    assert at([*FALLS, 0.5, 0.5]) is None
    assert at([*FALLS, 0.4, 0.4]) == 7


def test_a_second_fall_counts_from_where_it_begins() -> None:
    assert at([*FALLS, 1, 1, 0, 0, 0]) == 13


def test_the_gain_and_not_the_reward_sets_the_level() -> None:
    assert at([value + 100 for value in FALLS]) == at([value * 7 for value in FALLS]) == 7
    # From -1 to 1 a fall to .1 loses less than half of the gain.
    assert at([-1, -1, 1, 1, 1, 0.1, 0.1, 0.1]) is None


def test_enough_rounds_must_follow() -> None:
    assert at(FALLS, CollapseRule(2, 0.5, 0, 2)) == 7
    assert at(FALLS, CollapseRule(2, 0.5, 0, 3)) is None


def test_noise_is_no_collapse() -> None:
    rng = np.random.default_rng(0)
    flat = rng.normal(0, 1, (200, 40))
    # A run that gains nothing lies below its best by chance, so that the share alone is fooled.
    assert np.mean([at(list(row), CollapseRule(4, 0.5, 0)) is not None for row in flat]) > 0.5
    assert np.mean([at(list(row), DEFAULT) is not None for row in flat]) < 0.01
    rising = flat + np.minimum(np.arange(40), 20)
    fallen = np.where(np.arange(40) < 30, rising, flat)
    assert not any(at(list(row), DEFAULT) for row in rising)
    assert all(30 <= (at(list(row), DEFAULT) or 0) <= 34 for row in fallen)


def test_what_is_not_finite_is_a_collapse_there() -> None:
    assert at([0, 1, 2, 3, np.nan, np.nan]) == 4
    assert at([0, np.inf, 2, 3]) == 1
    # An earlier fall comes first.
    assert at([*FALLS, np.nan]) == 7


def test_runs_that_do_not_collapse_are_censored_at_their_end() -> None:
    x = np.array(range(1, 11), dtype=np.float64)
    steady = np.array([0.0, 0, 1, 1, 1, 1, 1, 1, 1, 1])
    rewards = {2: RunCurve(x, steady), 1: RunCurve(x * 4, np.array(FALLS))}
    times = collapse_times(rewards, PLAIN)
    assert times.seeds == (1, 2)
    # Round 7 of the first run was ready at update 32.
    assert times.time_S.tolist() == [32, 10] and times.reached_S.tolist() == [True, False]


def test_a_run_shorter_than_the_window_and_no_runs_are_refused() -> None:
    with pytest.raises(UserError, match="1 rounds are fewer than window=2"):
        at([1.0])
    with pytest.raises(UserError, match="no runs"):
        collapse_times({})

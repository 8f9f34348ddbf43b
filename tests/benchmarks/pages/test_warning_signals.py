"""Does a signal warn: hand-worked cases, and signals that know everything or nothing."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.pages.warning_signals import Course, alarms, concordance, recent_mean
from rlhf_lab.types.errors import UserError

LENGTH = 40


def course(values: list[float], collapse: int | None = None, stratum: str = "a") -> Course:
    return Course(stratum, np.array(values), collapse)


def rising(start: int, collapse: int | None) -> Course:
    """A signal that is 0 until `start` and 1 from there on."""
    return course([float(place >= start) for place in range(LENGTH)], collapse)


def test_the_recent_mean_leaves_out_what_is_not_a_number() -> None:
    nan = float("nan")
    found = recent_mean(np.array([4.0, 0, nan, 2, 0, 0, 8, nan, nan, nan, nan]), 3)
    # (4+0)/2, (0+2)/2, (2+0)/2, (2+0+0)/3, (0+0+8)/3, (0+8)/2, 8, and nothing twice
    assert found.tolist() == pytest.approx(
        [-np.inf, -np.inf, 2, 1, 1, 2 / 3, 8 / 3, 4, 8, -np.inf, -np.inf]
    )
    assert recent_mean(np.array([1.0, np.inf, 2.0]), 2)[1] > 1e199
    assert recent_mean(np.array([1.0, 2.0]), 3).tolist() == [-np.inf, -np.inf]


def test_pairs_are_compared_at_the_same_round_and_within_a_stratum() -> None:
    fallen = rising(10, 20)
    # Higher from round 18 on, less than 8 rounds before the collapse.
    late = rising(18, None)
    other = Course("b", np.full(LENGTH, 9.0), None)
    found = concordance([fallen, late, other], lead=8)
    assert (found.auroc, found.collapsed, found.stable) == (1.0, 1, 1)
    # A round before the signal rose, both are 0.
    assert concordance([fallen, late], lead=11).auroc == 0.5
    assert np.isnan(concordance([fallen, other], lead=1).auroc)


def test_a_run_that_collapses_before_a_window_is_not_counted() -> None:
    stable = rising(30, None)
    assert np.isnan(concordance([rising(0, 3), stable], lead=1).auroc)
    assert concordance([rising(0, 4), stable], lead=1).collapsed == 1


def test_a_signal_that_knows_nothing_has_an_interval_around_a_half() -> None:
    rng = np.random.default_rng(1)
    drawn = [
        Course("a", rng.normal(size=LENGTH), 30 if number % 2 else None) for number in range(120)
    ]
    found = concordance(drawn, lead=4)
    assert found.low < 0.5 < found.high and found.high - found.low < 0.3
    assert found == concordance(drawn, lead=4), "the same bits again"


def test_the_interval_holds_the_truth_as_often_as_it_states() -> None:
    """Normal signals that differ by one deviation of their highest means, 60 sets of 30 runs."""
    rng = np.random.default_rng(2)
    held = 0
    for _ in range(60):
        # One window: the signal is a number of each run, so that the truth is known.
        runs = [
            Course("a", np.full(8, rng.normal() + (number < 15)), 7 if number < 15 else None)
            for number in range(30)
        ]
        found = concordance(runs, lead=1)
        # Of two normals that differ by 1: the normal distribution at 1 / sqrt(2).
        held += found.low <= 0.7602 <= found.high
    assert held >= 51


def test_alarms_at_a_fixed_rate_of_false_ones() -> None:
    # Ten stable runs with peaks 0 to 9: one of ten may exceed the threshold of 8.
    stable = [course([float(peak)] * LENGTH) for peak in range(10)]
    warned = course([0.0] * 10 + [100.0] * 30, 20)
    silent = course([8.0] * LENGTH, 20)
    found = alarms([*stable, warned, silent])
    assert (found.warned, found.collapsed, found.false_alarms, found.stable) == (1, 2, 1, 10)
    # The mean of four rounds exceeds 8 at round 10, ten rounds before the collapse.
    assert found.median_lead == 10
    nothing = alarms([warned])
    assert nothing.collapsed == 0 and np.isnan(nothing.median_lead)


def test_a_lead_below_a_round_is_refused() -> None:
    with pytest.raises(UserError, match="lead=0: pass 1 round or more"):
        concordance([], lead=0)

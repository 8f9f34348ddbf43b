"""Runs at equal KL, and the KL of runs at equal quality."""

from __future__ import annotations

import pytest

from rlhf_lab_analysis.comparison.cell import Cell
from rlhf_lab_analysis.comparison.equal_kl import at_equal_quality, mirrored
from rlhf_lab_analysis.comparison.selection import cells
from rlhf_lab_analysis.statistics.curves import frontier_of
from tests.support.question_records import Made
from tests.support.table_records import tables

PLANE = ("gold/win_rate", "kl/sft_k1")


def two(
    first: Made, ends: tuple[float, ...], second: Made, others: tuple[float, ...]
) -> list[Cell]:
    """Two conditions, whose runs go from 0.4 on a straight line to these win-rates."""
    return list(cells(tables(*first.runs(ends), *second.runs(others))).cells)


def test_a_run_that_goes_twice_as_far_for_the_same_win_rate_has_more_kl_at_each() -> None:
    near, far = two(Made(kl=1.0), (0.8, 0.8), Made(per_round=4, kl=2.0), (0.8, 0.8))
    found = at_equal_quality(far, near, *PLANE)
    # Version 1, at 0.5, is the first that counts: KL 0.25 to 1 against 0.5 to 2, from 0.5 to 0.8.
    assert found == pytest.approx({1: 0.625, 2: 0.625})
    back = at_equal_quality(near, far, *PLANE)
    assert back[1] == pytest.approx(-0.625)


def test_only_win_rates_that_both_reach_are_compared() -> None:
    high, low = two(Made(kl=1.0), (0.8, 0.8), Made(per_round=4, kl=1.0), (0.6, 0.6))
    found = at_equal_quality(low, high, *PLANE)
    # From 0.5, the first version of the one, to 0.6: KL 0.5 to 1 against 0.25 to 0.5.
    assert found[1] == pytest.approx(0.375)


def test_each_win_rate_has_the_least_kl_at_which_it_or_a_better_one_was_reached() -> None:
    # The third evaluation is farther than the second, and worse.
    way = frontier_of("a run", [0.2, 0.5, 0.8, 1.0], [0.5, 0.7, 0.6, 0.8])
    curve = mirrored({1: way})[1]
    assert curve.x_P.tolist() == [-0.8, -0.7, -0.5]
    assert curve.y_P.tolist() == [-1.0, -0.5, -0.2]


def test_runs_without_a_win_rate_in_common_have_no_number() -> None:
    low, high = two(Made(kl=1.0), (0.41, 0.41), Made(per_round=4, kl=1.0, start=0.7), (0.9, 0.9))
    assert at_equal_quality(low, high, *PLANE) == {}

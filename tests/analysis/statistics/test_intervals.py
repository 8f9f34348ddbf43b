"""The textbook's interval of a mean, from the code of the jackknife's."""

from __future__ import annotations

import math

import pytest
from scipy import stats

from rlhf_lab_analysis.statistics.intervals import mean_ends


def test_the_interval_of_a_mean_is_the_textbooks() -> None:
    values = [1.0, 2.5, 2.0, 4.0]
    low, high = mean_ends(values, 0.9)
    known = stats.t.interval(0.9, 3, loc=2.375, scale=stats.sem(values))
    assert (low, high) == pytest.approx(known)


def test_one_value_bounds_nothing_and_equal_ones_have_no_width() -> None:
    assert mean_ends([3.0], 0.95) == (-math.inf, math.inf)
    assert mean_ends([3.0] * 4, 0.95) == (3.0, 3.0)

"""Parts of the variance of a number over stage seeds crossed with seeds of the run."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.statistics.variance_parts import variance_parts


def table(y_RC: np.ndarray) -> dict[int, dict[int, float]]:
    return {row: dict(enumerate(map(float, of_row))) for row, of_row in enumerate(y_RC)}


def test_parts_by_hand() -> None:
    # Means of rows 1, 4, 7 and of columns 3, 5; what is left is +-1, which is 0 on average.
    rest_RC = np.array([[1, -1], [-1, 1], [0, 0]])
    parts = variance_parts(table(np.array([[0, 2], [3, 5], [6, 8]]) + rest_RC))
    # Mean squares: rows 2 * 9 = 18, columns 3 * 2 = 6 (means 3 and 5), rest 4 / 2 = 2.
    assert parts.rows == pytest.approx(math.sqrt((18 - 2) / 2))
    assert parts.columns == pytest.approx(math.sqrt((6 - 2) / 3))
    assert parts.rest == pytest.approx(math.sqrt(2))
    assert parts.p_columns == pytest.approx(float(stats.f.sf(3, 1, 2)))
    assert parts.mean == 4
    # Means of rows are 3 apart: their standard deviation is 3. Over both, 18 + 6 - 2 of 6 numbers.
    assert parts.of_stages == pytest.approx(float(stats.t.ppf(0.975, 2)) * 3 / math.sqrt(3))
    freedom = 22**2 / (18**2 / 2 + 6**2 / 1 + 2**2 / 2)
    expected = float(stats.t.ppf(0.975, freedom)) * math.sqrt(22 / 6)
    assert parts.of_both == pytest.approx(expected)


def test_numbers_without_any_rest_are_of_their_rows() -> None:
    parts = variance_parts(table(np.array([[1.0, 1.0], [2.0, 2.0]])))
    assert (parts.rest, parts.p_columns) == (0, 1) and parts.rows > 0
    alike = variance_parts(table(np.ones((2, 2))))
    assert (alike.rows, alike.of_both) == (0, 0)


def test_an_interval_over_stage_seeds_holds_for_the_seeds_that_there_are() -> None:
    """Of numbers around 0 of which seeds have a part in common, that over both covers 0."""
    draw = np.random.default_rng(1)
    covered = np.zeros(2)
    for _ in range(400):
        y_RC = draw.normal(size=(8, 1)) + draw.normal(size=(1, 6)) + draw.normal(size=(8, 6))
        parts = variance_parts(table(y_RC), 0.9)
        covered += [abs(parts.mean) <= half for half in (parts.of_stages, parts.of_both)]
    # Satterthwaite's degrees of freedom are an approximation.
    assert covered[0] / 400 < 0.85 and abs(covered[1] / 400 - 0.9) < 0.06


@pytest.mark.parametrize(
    "numbers",
    [{1: {1: 0.0, 2: 0.0}}, {1: {1: 0.0}, 2: {1: 0.0}}, {1: {1: 0.0, 2: 1.0}, 2: {1: 0.0}}],
)
def test_what_is_not_crossed_is_refused(numbers: dict[int, dict[int, float]]) -> None:
    with pytest.raises(UserError, match="pass two or more stage seeds that have the same"):
        variance_parts(numbers)

"""Two levels of chance: seeds and prompts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.statistics.arrays import Floats
from rlhf_lab_analysis.statistics.levels import (
    draws_nested,
    draws_shared,
    two_levels,
    variances_nested,
    variances_shared,
)
from rlhf_lab_analysis.statistics.results import Method, Options

QUICK = Options(repetitions=1000)
MANY = Options(repetitions=40_000)
WINS = arrays(
    np.float64,
    st.tuples(st.integers(2, 5), st.integers(2, 6)),
    elements=st.sampled_from([0.0, 0.5, 1.0]),
)


def by_seed(wins_SP: Floats) -> dict[int, Floats]:
    return dict(enumerate(wins_SP))


def test_variances_of_shared_prompts_by_hand() -> None:
    # Seed means 1/2 and 1 (variance 1/8), prompt means 1, 1/2 (1/8), rest all +-1/4: sum 1/4.
    made = variances_shared(np.array([[1.0, 0.0], [1.0, 1.0]]))
    # rest 1/4 over one degree; seed 1/8 - (1/4) / 2 = 0, and the same for prompts.
    assert (made.rest, made.seed, made.prompt) == pytest.approx((0.25, 0.0, 0.0))
    assert made.mean == pytest.approx(0.25 / 4)
    # Without any rest the means' variances are all there is.
    plain = variances_shared(np.array([[0.0, 2.0], [4.0, 6.0]]))
    assert (plain.seed, plain.prompt, plain.rest) == pytest.approx((8.0, 2.0, 0.0))
    assert plain.mean == pytest.approx(8 / 2 + 2 / 2)
    assert plain.seed_share == pytest.approx(4 / 5)


def test_variances_of_prompts_within_seeds_by_hand() -> None:
    # Means 1 and 5, each +-1: within (2 + 2) / 2 = 2. Between 2 * (4 + 4) / 1 = 16; (16 - 2) / 2.
    made = variances_nested([np.array([0.0, 2.0]), np.array([4.0, 6.0])])
    assert (made.seed, made.prompt, made.rest) == pytest.approx((7.0, 0.0, 2.0))
    assert made.mean == pytest.approx(7 / 2 + 2 / 4)


def test_unequal_numbers_of_prompts_by_hand() -> None:
    # 2 and 4 prompts: typical (6 - 20 / 6) / 1 = 8/3. Means 1, 4; total mean 3; between
    # 2 * 4 + 4 * 1 = 12; within (2 + 4) / 4 = 3/2.
    rows = [np.array([0.0, 2.0]), np.array([3.0, 5.0, 3.0, 5.0])]
    made = variances_nested(rows)
    assert made.rest == pytest.approx(1.5)
    assert made.seed == pytest.approx((12 - 1.5) / (8 / 3))
    assert made.mean_rest == pytest.approx(1.5 * (1 / 2 + 1 / 4) / 4)


def test_variances_are_found_again() -> None:
    rng = np.random.default_rng(0)
    shape = (60, 80)
    wins_SP = rng.normal(0, 1, (60, 1)) + rng.normal(0, 2, (1, 80)) + rng.normal(0, 3, shape)
    made = variances_shared(wins_SP)
    assert made.seed == pytest.approx(1, rel=0.5)
    assert made.prompt == pytest.approx(4, rel=0.4)
    assert made.rest == pytest.approx(9, rel=0.1)


def test_draws_of_prompts_within_seeds_have_the_variance_that_is_worked_out() -> None:
    # Drawing seeds adds the variance of their means / S, drawing prompts the mean of theirs / SP.
    rows = [np.array([0.0, 1.0, 1.0, 0.5]), np.array([0.0, 0.0, 1.0, 0.0]), np.ones(4)]
    drawn_R = draws_nested(rows, MANY)
    means = np.array([row.mean() for row in rows])
    expected = means.var() / 3 + np.mean([row.var() for row in rows]) / 12
    assert drawn_R.mean() == pytest.approx(means.mean(), abs=5 * np.sqrt(expected / 40_000))
    assert drawn_R.var() == pytest.approx(expected, rel=0.05)


def test_draws_of_shared_prompts_vary_with_prompts_too() -> None:
    # Rows are equal: all variance is of prompts, of which 4 are drawn.
    wins_SP = np.tile(np.array([0.0, 1.0, 1.0, 1.0]), (3, 1))
    assert draws_shared(wins_SP, MANY).var() == pytest.approx(0.75 * 0.25 / 4, rel=0.05)
    made = two_levels(by_seed(wins_SP), True, MANY)
    assert made.seeds_alone.low == made.seeds_alone.high == 0.75
    assert made.seeds_and_prompts.low < 0.5 < 0.75 < made.seeds_and_prompts.high


@given(WINS, st.booleans())
def test_intervals_hold_the_mean_and_repeat(wins_SP: Floats, shared: bool) -> None:
    made = two_levels(by_seed(wins_SP), shared, QUICK)
    assert made == two_levels(by_seed(wins_SP), shared, QUICK)
    assert made.seeds_alone.point == pytest.approx(wins_SP.mean())
    for each in (made.seeds_alone, made.seeds_and_prompts):
        assert each.low - 1e-12 <= each.point <= each.high + 1e-12
    assert 0 <= made.variances.seed_share <= 1


def test_the_method_of_each_interval_is_told() -> None:
    wins_SP = np.random.default_rng(1).integers(0, 2, (4, 50)).astype(float)
    made = two_levels(by_seed(wins_SP), False, Options(method=Method.t, repetitions=1000))
    assert made.seeds_alone.basis.options.method is Method.t
    assert made.seeds_and_prompts.basis.options.method is Method.percentile
    assert any("fewer than 5" in told for told in made.warnings)


BAD: list[tuple[str, Callable[[], object]]] = [
    ("wins: 1 seed", lambda: two_levels({1: [0, 1]}, True, QUICK)),
    ("one prompt", lambda: two_levels({1: [0], 2: [1]}, True, QUICK)),
    (r"on \[2, 3\] prompts", lambda: two_levels({1: [0, 1], 2: [1, 1, 0]}, True, QUICK)),
    (r"wins\[seed 2\]\[1\] is nan", lambda: two_levels({1: [0, 1], 2: [1, np.nan]}, False, QUICK)),
]


@pytest.mark.parametrize(("message", "call"), BAD, ids=[message for message, _ in BAD])
def test_what_cannot_be_is_refused_with_what_to_do(
    message: str, call: Callable[[], object]
) -> None:
    with pytest.raises(UserError, match=message):
        call()

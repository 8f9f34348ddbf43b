"""Two conditions: pairs, p-values, verdicts within a margin, speed-up."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.statistics.contrasts import (
    apart,
    difference,
    in_pairs,
    matched,
    p_value,
    speed_up,
)
from rlhf_lab_analysis.statistics.decisions import Finding
from rlhf_lab_analysis.statistics.equivalence import Margin, equivalence, points
from rlhf_lab_analysis.statistics.results import OF_ANY_NUMBER, Method, Options

QUICK = Options(repetitions=1000)
STUDENT = Options(method=Method.t)
ZEROS = {1: 0.0, 2: 0.0, 3: 0.0}
DIFFERENCES = st.lists(st.integers(-6, 6).map(float), min_size=2, max_size=9)


def against_zero(*values: float) -> tuple[dict[int, float], dict[int, float]]:
    """Conditions whose pairs differ by the values."""
    seeds = range(1, len(values) + 1)
    return dict(zip(seeds, values, strict=True)), dict.fromkeys(seeds, 0.0)


def test_pairs_are_made_by_seed_and_the_rest_is_told() -> None:
    made = in_pairs({3: 5.0, 1: 1.0, 2: 2.0, 9: 9.0}, {1: 0.5, 2: 1.0, 3: 1.0})
    assert made.seeds == (1, 2, 3)
    assert made.parts[0].tolist() == [0.5, 1.0, 4.0]
    assert made.warnings == ("left out of the pairs, as one condition alone has them: seeds [9]",)


def test_pairs_take_away_what_seeds_share() -> None:
    # Seeds differ by tens, conditions by 1 with little noise.
    first = {seed: 10.0 * seed + 1 + 0.01 * seed for seed in range(6)}
    second = {seed: 10.0 * seed for seed in range(6)}
    paired = difference(in_pairs(first, second), STUDENT)
    assert paired.point == pytest.approx(difference(apart(first, second), STUDENT).point)
    assert 500 * paired.half_width < difference(apart(first, second), STUDENT).half_width
    assert any("pairs would show more" in text for text in apart(first, second).warnings)


def test_t_intervals_are_those_of_student_and_welch() -> None:
    first, second = [1.0, 2.0, 4.0, 8.0], [0.5, 0.0, 5.0, 1.0]
    one, two = against_zero(*first)[0], against_zero(*second)[0]
    paired = difference(in_pairs(one, two), STUDENT)
    expected = stats.ttest_rel(first, second).confidence_interval(0.95)
    assert (paired.low, paired.high) == pytest.approx((expected.low, expected.high))
    unpaired = difference(apart(one, {seed + 10: value for seed, value in two.items()}), STUDENT)
    expected = stats.ttest_ind(first, second, equal_var=False).confidence_interval(0.95)
    assert (unpaired.low, unpaired.high) == pytest.approx((expected.low, expected.high))


@pytest.mark.parametrize("method", OF_ANY_NUMBER)
def test_a_difference_turned_round_is_its_negative(method: Method) -> None:
    first, second = against_zero(*np.random.default_rng(6).normal(size=9))
    made = difference(in_pairs(first, second), Options(method=method))
    turned = difference(in_pairs(second, first), Options(method=method))
    assert turned.point == pytest.approx(-made.point)
    # Differences in order are turned round as well, so that the ends agree but for chance.
    close = 0.06 * made.half_width
    assert (-turned.high, -turned.low) == pytest.approx((made.low, made.high), abs=close)


@given(DIFFERENCES)
def test_the_p_value_is_that_of_student_and_of_welch(values: list[float]) -> None:
    first, second = against_zero(*values)
    if max(values) == min(values):
        assert p_value(in_pairs(first, second)) == float(values[0] == 0)
        return
    assert p_value(in_pairs(first, second)) == pytest.approx(stats.ttest_1samp(values, 0).pvalue)
    others = {7: 0.5, 8: 2.0, 9: -1.0}
    expected = stats.ttest_ind(values, [*others.values()], equal_var=False).pvalue
    assert p_value(apart(first, others)) == pytest.approx(expected)


def test_two_one_sided_tests_are_worked_out_by_hand() -> None:
    # Differences -1 0 1 points: mean 0, error 1 / sqrt(3) points.
    verdict = equivalence(in_pairs(*against_zero(-0.01, 0.0, 0.01)), points(3))
    assert verdict.finding is Finding.equal and verdict.text == "equal within 3 points"
    half = 0.01 * 2.919985580355516 / np.sqrt(3)  # the 95% quantile of t with 2 degrees
    assert (verdict.difference.low, verdict.difference.high) == pytest.approx((-half, half))
    assert verdict.difference.basis.options.text == "90% t"
    # half is 1.686 points: the narrowest margin that can be shown.
    contrast = in_pairs(*against_zero(-0.01, 0.0, 0.01))
    assert equivalence(contrast, points(1.69)).finding is Finding.equal
    assert equivalence(contrast, points(1.68)).text == "not shown to be equal within 1.68 points"


NOT_EQUAL = "not shown to be equal within 2 points"


@pytest.mark.parametrize(
    ("values", "finding", "text"),
    [
        ((-0.10, -0.11, -0.09), Finding.worse, "worse by more than 2 points"),
        ((0.10, 0.11, 0.09), Finding.better, "better by more than 2 points"),
        ((-0.1, 0.1, 0.0), Finding.not_shown, NOT_EQUAL),
        ((0.001, 0.002, -0.001), Finding.equal, "equal within 2 points"),
    ],
)
def test_verdicts_in_words(values: tuple[float, ...], finding: Finding, text: str) -> None:
    verdict = equivalence(in_pairs(*against_zero(*values)), points(2))
    assert (verdict.finding, verdict.text) == (finding, text)
    assert any("fewer than 5" in told for told in verdict.warnings)


@pytest.mark.parametrize("value", [0.0, 0.05, -0.05])
def test_runs_that_no_seed_tells_apart_show_nothing_and_that_is_told(value: float) -> None:
    contrast = in_pairs({1: 0.1 + value, 2: 0.3 + value, 3: 0.7 + value}, {1: 0.1, 2: 0.3, 3: 0.7})
    verdict = equivalence(contrast, points(2))
    assert verdict.finding is Finding.not_shown
    assert verdict.text.startswith("cannot tell: no seed differs from another")
    same = in_pairs(*against_zero(0.0, 0.0, 0.0))
    assert any("no seed differs" in told for told in equivalence(same, points(2)).warnings)


def test_for_costs_lower_is_better() -> None:
    slower = in_pairs(*against_zero(10.0, 11.0, 9.0))
    verdict = equivalence(slower, Margin(2.0, "s"), higher_is_better=False)
    assert verdict.text == "worse by more than 2 s"
    assert verdict.difference.point == -10.0
    assert verdict.difference.low <= -10.0 <= verdict.difference.high
    assert equivalence(slower, Margin(2.0, "s")).finding is Finding.better


@given(DIFFERENCES, st.sampled_from([0.5, 1.0, 3.0]))
def test_equal_is_said_exactly_if_the_interval_lies_within(
    values: list[float], size: float
) -> None:
    verdict = equivalence(in_pairs(*against_zero(*values)), Margin(size))
    low, high = verdict.difference.low, verdict.difference.high
    is_flat = max(values) == min(values)
    assert (verdict.finding is Finding.equal) == (-size < low and high < size and not is_flat)
    # The one-sided tests whose ends the interval has reject the same.
    if not is_flat:
        above = stats.ttest_1samp(values, -size, alternative="greater").pvalue
        below = stats.ttest_1samp(values, size, alternative="less").pvalue
        assert (verdict.finding is Finding.equal) == (max(above, below) < 0.05)


def test_equality_is_claimed_of_different_conditions_in_5_of_100_at_most() -> None:
    # The truth lies at the margin, where a claim is wrong.
    rng = np.random.default_rng(2)
    wrong = sum(
        equivalence(in_pairs(*against_zero(*rng.normal(1.0, 0.4, size=5))), Margin(1.0)).finding
        is Finding.equal
        for _ in range(800)
    )
    assert wrong / 800 <= 0.05 + 5 * np.sqrt(0.05 * 0.95 / 800)
    assert wrong > 0


def test_a_speed_up_is_the_ratio_of_geometric_means() -> None:
    # Ratios 2, 2 and 16: geometric mean 4.
    before, after = {1: 2.0, 2: 8.0, 3: 32.0}, {1: 1.0, 2: 4.0, 3: 2.0}
    made = speed_up(before, after, QUICK)
    assert made.name == "paired speed-up"
    assert made.point == pytest.approx(4.0)
    assert 2 - 1e-9 <= made.low <= 4 <= made.high <= 16 + 1e-9
    turned = speed_up(after, before, STUDENT)
    straight = speed_up(before, after, STUDENT)
    assert (1 / turned.high, 1 / turned.low) == pytest.approx((straight.low, straight.high))


def test_a_speed_up_of_other_seeds_is_of_independent_runs() -> None:
    made = speed_up({1: 2.0, 2: 4.0}, {1: 1.0, 3: 2.0}, QUICK)
    assert made.name == "speed-up" and made.point == pytest.approx(2.0)
    assert any("taken as independent" in told for told in made.warnings)
    assert matched({1: 2.0, 2: 4.0}, {2: 1.0, 1: 2.0}).is_paired


BAD: list[tuple[str, Callable[[], object]]] = [
    ("1 seeds are common to both", lambda: in_pairs({1: 1.0, 2: 2.0}, {2: 1.0, 3: 1.0})),
    (r"first\[seed 2\] is nan", lambda: in_pairs({1: 1.0, 2: float("nan")}, ZEROS)),
    ("first has no seeds", lambda: in_pairs({}, ZEROS)),
    ("second: 1 seed", lambda: apart(ZEROS, {1: 1.0})),
    (r"before\[seed 1\] is 0.0: a ratio", lambda: speed_up(ZEROS, ZEROS, QUICK)),
    ("margin=0: pass the largest difference", lambda: Margin(0)),
    ("margin=inf", lambda: points(float("inf"))),
]


@pytest.mark.parametrize(("message", "call"), BAD, ids=[message for message, _ in BAD])
def test_what_cannot_be_is_refused_with_what_to_do(
    message: str, call: Callable[[], object]
) -> None:
    with pytest.raises(UserError, match=message):
        call()

"""Two conditions: pairs, exact tests, verdicts within a margin, speed-up, seeds still needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.statistics.contrasts import apart, difference, in_pairs, matched, speed_up
from rlhf_lab_analysis.statistics.decisions import Finding
from rlhf_lab_analysis.statistics.equivalence import Margin, equivalence, non_inferiority, points
from rlhf_lab_analysis.statistics.exact import paired_tests, sign_flip, student, wilcoxon
from rlhf_lab_analysis.statistics.multiple import holm, largest_t
from rlhf_lab_analysis.statistics.planning import more_seeds
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


def test_tasks_of_a_seed_are_averaged_before_pairs_are_made() -> None:
    made = in_pairs({1: [1.0, 3.0], 2: [2.0, 6.0]}, {1: [0.0, 0.0], 2: [1.0, 1.0]})
    assert made.parts[0].tolist() == [2.0, 3.0]


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


def test_flipped_signs_are_counted_by_hand() -> None:
    # Of 8 choices of signs only +++ and --- reach |6|, with 1 2 3; with -1 2 3 also four others.
    assert sign_flip(np.array([1.0, 2.0, 3.0])) == 2 / 8
    assert sign_flip(np.array([-1.0, 2.0, 3.0])) == 4 / 8
    assert sign_flip(np.zeros(3)) == 1.0


def test_signed_ranks_are_counted_by_hand() -> None:
    # Ranks 1 to 4; -1 has rank 1. Sums of at most 1: {} and {1}, of 16, twice.
    assert wilcoxon(np.array([-1.0, 2.0, 3.0, 4.0])) == 4 / 16
    # A zero is left out, two ties share rank 1.5: sums 0, 1.5, 1.5, 3; all positive.
    assert wilcoxon(np.array([0.0, 2.0, 2.0])) == 2 / 4
    assert wilcoxon(np.zeros(4)) == 1.0


@given(st.lists(st.integers(1, 1000), min_size=3, max_size=12, unique=True), st.integers(0, 4095))
def test_signed_ranks_are_those_of_scipy(sizes: list[int], signs: int) -> None:
    values = np.array([size if signs >> place & 1 else -size for place, size in enumerate(sizes)])
    expected = stats.wilcoxon(values, method="exact").pvalue
    assert wilcoxon(values.astype(float)) == pytest.approx(expected)


def test_students_p_is_that_of_scipy() -> None:
    values = np.array([0.5, 1.5, -0.5, 2.0])
    assert student(values) == pytest.approx(stats.ttest_1samp(values, 0).pvalue)
    assert (student(np.ones(3)), student(np.zeros(3))) == (0.0, 1.0)


@given(DIFFERENCES)
def test_tests_do_not_depend_on_order_sign_or_scale(values: list[float]) -> None:
    tests = [
        paired_tests(in_pairs(*against_zero(*changed)))
        for changed in (values, values[::-1], [-value for value in values])
    ]
    for made in tests[1:]:
        assert made.sign_flip == tests[0].sign_flip and made.wilcoxon == tests[0].wilcoxon
    assert tests[0].smallest <= tests[0].sign_flip <= 1
    scaled = [0.1 * value for value in values]
    assert sign_flip(np.array(scaled)) == sign_flip(np.array(values))


def test_p_values_are_uniform_if_there_is_no_difference() -> None:
    values = np.random.default_rng(0).normal(size=(1500, 6))
    for test in (sign_flip, wilcoxon, student):
        found = np.array([test(row) for row in values])
        for level in (0.0625, 0.25, 0.5):
            error = 5 * np.sqrt(level * (1 - level) / len(values))
            assert (found <= level).mean() <= level + error
            # Of 64 signs these levels can be reached; Wilcoxon's sums lie a bit below.
            assert (found <= level).mean() >= 0.8 * level - error


def test_many_pairs_are_tested_with_random_signs() -> None:
    values = np.random.default_rng(1).normal(size=30)
    made = paired_tests(in_pairs(*against_zero(*values)), repetitions=20_000, seed=3)
    assert not made.is_exact
    assert made.sign_flip == pytest.approx(made.t, abs=0.02)
    again = paired_tests(in_pairs(*against_zero(*values)), repetitions=20_000, seed=3)
    assert again == made


def test_too_few_pairs_for_any_small_p_are_told() -> None:
    made = paired_tests(in_pairs(*against_zero(1.0, 2.0, 3.0, 4.0, 5.0)))
    assert (made.seeds, made.better, made.sign_flip, made.is_exact) == (5, 5, 0.0625, True)
    (told,) = made.warnings
    assert "no p below 0.0625 is possible" in told and "6 pairs could reach 0.05" in told
    with pytest.raises(UserError, match="not in pairs"):
        paired_tests(apart(ZEROS, {7: 1.0, 8: 2.0}))


def test_two_one_sided_tests_are_worked_out_by_hand() -> None:
    # Differences -1 0 1 points: mean 0, error 1 / sqrt(3) points; against 3 points t = 5.196.
    verdict = equivalence(in_pairs(*against_zero(-0.01, 0.0, 0.01)), points(3))
    p = float(stats.t.sf(3 * np.sqrt(3), 2))
    assert (verdict.above, verdict.below) == pytest.approx((p, p))
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
    ("values", "finding", "text", "one_sided"),
    [
        ((-0.10, -0.11, -0.09), Finding.worse, "worse by more than 2 points", Finding.worse),
        ((0.10, 0.11, 0.09), Finding.better, "better by more than 2 points", Finding.not_worse),
        ((-0.1, 0.1, 0.0), Finding.not_shown, NOT_EQUAL, Finding.not_shown),
        ((0.001, 0.002, -0.001), Finding.equal, "equal within 2 points", Finding.not_worse),
    ],
)  # fmt: skip
def test_verdicts_in_words(
    values: tuple[float, ...], finding: Finding, text: str, one_sided: Finding
) -> None:
    contrast = in_pairs(*against_zero(*values))
    verdict = equivalence(contrast, points(2))
    assert (verdict.finding, verdict.text) == (finding, text)
    assert non_inferiority(contrast, points(2)).finding is one_sided
    assert any("fewer than 5" in told for told in verdict.warnings)


@pytest.mark.parametrize("value", [0.0, 0.05, -0.05])
def test_runs_that_no_seed_tells_apart_show_nothing_and_that_is_told(value: float) -> None:
    contrast = in_pairs({1: 0.1 + value, 2: 0.3 + value, 3: 0.7 + value}, {1: 0.1, 2: 0.3, 3: 0.7})
    for verdict in (equivalence(contrast, points(2)), non_inferiority(contrast, points(2))):
        assert verdict.finding is Finding.not_shown
        assert verdict.text.startswith("cannot tell: no seed differs from another")
    same = in_pairs(*against_zero(0.0, 0.0, 0.0))
    assert any("no seed differs" in told for told in equivalence(same, points(2)).warnings)


def test_for_costs_lower_is_better() -> None:
    slower = in_pairs(*against_zero(10.0, 11.0, 9.0))
    margin = Margin(2.0, "s")
    verdict = non_inferiority(slower, margin, higher_is_better=False)
    assert verdict.text == "worse by more than 2 s"
    assert verdict.difference.point == -10.0
    assert verdict.difference.low <= -10.0 <= verdict.difference.high
    assert non_inferiority(slower, margin).finding is Finding.not_worse


@given(DIFFERENCES, st.sampled_from([0.5, 1.0, 3.0]))
def test_equal_is_said_exactly_if_the_interval_lies_within(
    values: list[float], size: float
) -> None:
    verdict = equivalence(in_pairs(*against_zero(*values)), Margin(size))
    low, high = verdict.difference.low, verdict.difference.high
    is_flat = max(values) == min(values)
    assert (verdict.finding is Finding.equal) == (-size < low and high < size and not is_flat)
    # The tests of which the interval has the ends say the same.
    if not is_flat:
        assert (verdict.finding is Finding.equal) == (max(verdict.above, verdict.below) < 0.05)


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


def test_seeds_needed_are_worked_out_by_hand() -> None:
    # Standard deviation 1. t(0.975, 5) / sqrt(6) = 1.049, t(0.975, 6) / sqrt(7) = 0.925.
    made = more_seeds(in_pairs(*against_zero(-1.0, 0.0, 1.0)), 1.0)
    assert (made.seeds, made.needed, made.more) == (3, 7, 4)
    assert made.low < 7 < made.high
    assert any("itself uncertain" in told for told in made.warnings)
    enough = more_seeds(in_pairs(*against_zero(-1.0, 0.0, 1.0)), 2.5)
    assert (enough.needed, enough.more) == (3, 0)


def test_seeds_needed_make_the_interval_as_narrow_as_wanted() -> None:
    rng = np.random.default_rng(4)
    one, two = rng.normal(size=(2, 6))
    contrast = apart(dict(enumerate(one)), {seed + 10: value for seed, value in enumerate(two)})
    made = more_seeds(contrast, 0.7)
    variance = float(one.var(ddof=1) + two.var(ddof=1))
    for seeds, is_enough in ((made.needed, True), (made.needed - 1, False)):
        half = stats.t.ppf(0.975, 2 * (seeds - 1)) * np.sqrt(variance / seeds)
        assert bool(half <= 0.7) is is_enough


def test_holm_is_worked_out_by_hand() -> None:
    # Sorted .01 .02 .03 .5 times 4 3 2 1, each at least the one before.
    found = holm({"a": 0.02, "b": 0.01, "c": 0.5, "d": 0.03})
    assert found == pytest.approx({"a": 0.06, "b": 0.04, "c": 0.5, "d": 0.06})
    assert holm({"a": 0.9, "b": 0.9}) == {"a": 1.0, "b": 1.0}


def conditions(columns: Mapping[str, list[float]]) -> dict[str, dict[int, float]]:
    return {name: dict(enumerate(values)) for name, values in columns.items()}


def test_the_largest_t_is_worked_out_by_hand() -> None:
    # a: 1 1 1, of 8 signs 2 reach its ratio of 1. b: 1 0 -1 has mean 0, which all signs reach.
    made = largest_t(
        conditions({"sync": [0.0, 0.0, 0.0], "a": [1.0, 1.0, 1.0], "b": [1.0, 0.0, -1.0]}), "sync"
    )
    by_name = {each.condition: each for each in made.compared}
    assert (by_name["a"].difference, by_name["a"].p) == (1.0, 0.25)
    # b's ratio is (sum)^2 / 2 = 2 of 3 at most: it never reaches a's (sum)^2 / 3 = 3 of 3.
    assert by_name["a"].adjusted == 0.25
    assert by_name["b"].p == by_name["b"].adjusted == 1.0
    assert made.is_exact and any("no p below 0.25" in told for told in made.warnings)


@given(st.integers(0, 10_000))
def test_adjusted_p_values_are_no_smaller_and_do_not_depend_on_order(key: int) -> None:
    values = np.random.default_rng(key).normal(size=(4, 6))
    made = largest_t(conditions(dict(zip("sabc", values.tolist(), strict=True))), "s")
    for each in made.compared:
        assert each.p <= each.adjusted <= 1
    turned = largest_t(
        conditions(dict(zip("scba", values[[0, 3, 2, 1]].tolist(), strict=True))), "s"
    )
    assert set(turned.compared) == set(made.compared)


def test_largest_t_keeps_the_level_over_all_conditions() -> None:
    rng, claims = np.random.default_rng(5), 0
    for _ in range(600):
        values = rng.normal(size=(4, 7))
        made = largest_t(conditions(dict(zip("sabc", values.tolist(), strict=True))), "s")
        claims += min(each.adjusted for each in made.compared) <= 0.05
    assert claims / 600 <= 0.05 + 5 * np.sqrt(0.05 * 0.95 / 600)
    assert claims > 0


BAD: list[tuple[str, Callable[[], object]]] = [
    ("1 seeds are common to both", lambda: in_pairs({1: 1.0, 2: 2.0}, {2: 1.0, 3: 1.0})),
    (r"first\[seed 2\]\[0\] is nan", lambda: in_pairs({1: 1.0, 2: float("nan")}, ZEROS)),
    ("first has no seeds", lambda: in_pairs({}, ZEROS)),
    ("first: seeds have different numbers of tasks", lambda: in_pairs({1: [1], 2: [1, 2]}, ZEROS)),
    ("second: 1 seed", lambda: apart(ZEROS, {1: 1.0})),
    (r"before\[seed 1\] is 0.0: a ratio", lambda: speed_up(ZEROS, ZEROS, QUICK)),
    ("margin=0: pass the largest difference", lambda: Margin(0)),
    ("margin=inf", lambda: points(float("inf"))),
    ("half_width=0", lambda: more_seeds(in_pairs(*against_zero(1.0, 2.0)), 0)),
    ("more than 1000000 seeds", lambda: more_seeds(in_pairs(*against_zero(1.0, 2.0)), 1e-6)),
    ("p of a is 1.5", lambda: holm({"a": 1.5})),
    ("control=x: pass one of a, b", lambda: largest_t({"a": ZEROS, "b": ZEROS}, "x")),
    ("0 seeds are common", lambda: largest_t({"a": ZEROS, "b": {7: 1.0}}, "a")),
]


@pytest.mark.parametrize(("message", "call"), BAD, ids=[message for message, _ in BAD])
def test_what_cannot_be_is_refused_with_what_to_do(
    message: str, call: Callable[[], object]
) -> None:
    with pytest.raises(UserError, match=message):
        call()

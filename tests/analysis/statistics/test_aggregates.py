"""Aggregates of a few seeds and tasks, their intervals, and rliable as the measure of both."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from rliable import library, metrics
from scipy import stats

from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.statistics import bootstrap
from rlhf_lab_analysis.statistics.aggregates import (
    MEASURES,
    aggregates,
    iqm,
    points,
)
from rlhf_lab_analysis.statistics.arrays import Floats
from rlhf_lab_analysis.statistics.intervals import acceleration, bca_tails
from rlhf_lab_analysis.statistics.results import OF_ANY_NUMBER, Estimate, Method, Options
from rlhf_lab_analysis.statistics.scores import scores_of

QUICK = Options(repetitions=1000)
# Standard errors that a bootstrap quantile may be off: 5 are exceeded once in millions.
ERRORS = 5.0


def estimates(scores: Floats, options: Options = QUICK) -> dict[str, Estimate]:
    return aggregates({"a": scores}, options)["a"]


def random_scores(*shape: int) -> Floats:
    return np.random.default_rng(3).normal(size=shape)


SCORES = arrays(
    np.float64,
    st.tuples(st.integers(2, 5), st.integers(1, 4)),
    elements=st.integers(0, 20).map(lambda number: number / 4),
)


def test_measures_are_those_worked_out_by_hand() -> None:
    scores_ST = np.array([[0.0, 4.0], [1.0, 5.0], [2.0, 0.5], [5.0, 2.5]])
    # Sorted: 0 .5 1 2 2.5 4 5 5. Two are cut at each end: (1 + 2 + 2.5 + 4) / 4.
    # Task means 2 and 3. Cut at 1: tasks (0 1 1 1) and (1 1 .5 1).
    found = points(scores_ST)
    assert found["iqm"] == 9.5 / 4
    assert found["median"] == found["mean"] == 2.5
    assert found["optimality_gap"] == 1 - (3 / 4 + 3.5 / 4) / 2


def test_the_iqm_of_three_scores_cuts_none_and_says_so() -> None:
    found = estimates(np.array([[1.0], [2.0], [6.0]]))["iqm"]
    assert found.point == 3.0
    assert "the IQM of 3 scores cuts none: it is their mean" in found.warnings


def test_tasks_with_unequal_seeds_are_allowed_and_told() -> None:
    scores = {"long": [0.0, 1.0, 2.0, 3.0, 4.0], "short": [10.0, 12.0]}
    found = aggregates({"a": scores}, QUICK)["a"]
    assert found["mean"].point == (2 + 11) / 2
    # Of a weight of 7 each task has 3.5, so that its scores have 0.7 and 1.75 each. Of 0 1 2 3 4 10
    # 12 a weight of 1 is cut at each end: 0 and 0.3 of 1, and of 12 all but 0.75.
    middle = 0.4 * 1 + 0.7 * (2 + 3 + 4) + 1.75 * 10 + 0.75 * 12
    assert found["iqm"].point == pytest.approx(middle / 5)
    assert sorted(found["mean"].basis.seeds) == [2, 5]
    assert any("unequal numbers of seeds" in text for text in found["mean"].warnings)


@pytest.mark.parametrize("measure", MEASURES)
def test_how_many_seeds_a_task_has_moves_no_measure(measure: str) -> None:
    easy, hard = np.array([0.6, 0.7, 0.8, 0.9]), np.array([0.1, 0.2, 0.4, 0.5])
    found = [
        points({"easy": np.tile(easy, ours), "hard": np.tile(hard, others)})[measure]
        for ours, others in ((1, 1), (7, 2), (2, 7))
    ]
    assert found[1:] == pytest.approx([found[0]] * 2)


def test_conditions_that_differ_in_no_seed_are_alike_whatever_runs_one_of_them_lacks() -> None:
    rng = np.random.default_rng(0)
    easy, hard = 0.85 + 0.02 * rng.normal(size=29), 0.75 + 0.02 * rng.normal(size=29)
    many = {"a": hard[:8], "b": easy, "c": hard[8:18]}
    few = {"a": hard[:8], "b": easy[:8], "c": hard[8:14]}
    made = aggregates({"many": many, "few": few}, Options(method=Method.t))
    high, low = made["many"]["iqm"], made["few"]["iqm"]
    assert max(high.low, low.low) < min(high.high, low.high)
    assert high.point == pytest.approx(low.point, abs=0.01)


@given(SCORES, st.integers(1, 4))
def test_the_iqm_of_counted_scores_is_that_of_repeated_ones(scores_ST: Floats, times: int) -> None:
    scores = scores_of("a", scores_ST)
    repeated = np.repeat(scores.values_NF[:, 0], times)
    found = iqm(scores, np.full((scores_ST.size, 1), float(times)))[0, 0]
    assert found == pytest.approx(stats.trim_mean(repeated, 0.25), abs=1e-12)


def test_the_t_interval_of_one_task_is_that_of_the_textbook() -> None:
    found = estimates(np.array([[1.0], [2.0], [3.0]]), Options(method=Method.t))["mean"]
    half = 4.302652729911275 / np.sqrt(3)  # the 97.5% quantile of t with 2 degrees, s = 1
    assert (found.low, found.high) == pytest.approx((2 - half, 2 + half), abs=1e-9)


def test_the_t_interval_of_two_tasks_is_that_of_welch() -> None:
    first, second = np.array([1.0, 2.0, 6.0]), np.array([4.0, 4.5, 5.0, 9.0])
    made = aggregates({"a": {"x": first, "y": second}}, Options(method=Method.t))["a"]["mean"]
    expected = stats.ttest_ind(first, -second, equal_var=False).confidence_interval(0.95)
    assert (2 * made.low, 2 * made.high) == pytest.approx((expected.low, expected.high), abs=1e-9)


def test_bca_without_bias_and_skewness_is_percentile() -> None:
    tails = np.array([0.025, 0.975])
    drawn_RM: Floats = np.linspace(-50, 50, 101)[:, None]
    flat = bca_tails(np.zeros(1), drawn_RM, np.zeros(1), tails)
    assert flat[:, 0] == pytest.approx(tails, abs=1e-12)


def test_bca_moves_its_tails_as_its_formula_says() -> None:
    # Half of the draws and one tie of 8 lie below: z0 = ppf(4.5 / 8).
    drawn_RM = np.array([1.0, 2, 3, 4, 5, 6, 7, 8])[:, None]
    shift, quantile, bend = float(stats.norm.ppf(4.5 / 8)), 1.959963984540054, 0.1
    found = bca_tails(np.array([5.0]), drawn_RM, np.array([bend]), np.array([0.025, 0.975]))
    for place, sign in enumerate((-1, 1)):
        moved = shift + sign * quantile
        assert found[place, 0] == pytest.approx(stats.norm.cdf(shift + moved / (1 - bend * moved)))


def test_the_acceleration_of_one_stratum_is_efrons() -> None:
    values = np.array([0.0, 0.0, 1.0, 5.0])
    without = [np.array([[np.delete(values, place).mean()] for place in range(4)])]
    moved = values - values.mean()
    expected = (moved**3).sum() / (6 * (moved**2).sum() ** 1.5)
    assert acceleration(without)[0] == pytest.approx(expected)


def test_bca_agrees_with_that_of_scipy() -> None:
    values = np.random.default_rng(0).lognormal(size=12)
    made = estimates(values[:, None], Options(method=Method.bca, repetitions=20_000))["mean"]
    other = stats.bootstrap(
        (values,), np.mean, n_resamples=20_000, method="BCa", rng=np.random.default_rng(1)
    ).confidence_interval
    spread = made.high - made.low
    assert (made.low, made.high) == pytest.approx((other.low, other.high), abs=0.03 * spread)


@pytest.mark.parametrize("method", OF_ANY_NUMBER)
def test_the_same_seed_gives_the_same_bits(method: Method) -> None:
    scores, options = random_scores(9, 3), replace(QUICK, method=method)
    first = aggregates({"a": scores}, options)
    assert aggregates({"a": scores}, options) == first
    # A further condition changes nothing for the others.
    assert aggregates({"b": 2 * scores, "a": scores}, options)["a"] == first["a"]
    other = aggregates({"a": scores}, replace(options, seed=1))
    assert (other["a"]["mean"].low == first["a"]["mean"].low) is (method is Method.t)


def test_golden_values_of_a_seed() -> None:
    scores_ST = np.array([[0.13, 0.92], [0.31, 0.84], [0.25, 0.43], [0.07, 0.71], [0.39, 0.66]])
    found = estimates(scores_ST, Options(seed=7, method=Method.bca))["iqm"]
    assert (found.low, found.high) == pytest.approx((0.33, 0.5533333333333333), abs=1e-12)


@given(SCORES)
def test_the_order_of_seeds_leaves_no_trace(scores_ST: Floats) -> None:
    rows = np.random.default_rng(int(scores_ST.sum())).permutation(len(scores_ST))
    assert estimates(scores_ST[rows]) == estimates(scores_ST)


@given(SCORES)
def test_the_order_of_tasks_leaves_no_trace(scores_ST: Floats) -> None:
    columns = np.random.default_rng(int(scores_ST.sum())).permutation(scores_ST.shape[1])
    assert estimates(scores_ST[:, columns]) == estimates(scores_ST)


@pytest.mark.parametrize("method", OF_ANY_NUMBER)
def test_estimates_and_intervals_move_with_the_scale_of_scores(method: Method) -> None:
    scores, options = random_scores(5, 3), replace(QUICK, method=method)
    for measure in ("iqm", "median", "mean"):
        made = estimates(scores, options)[measure]
        moved = estimates(3 * scores + 7, options)[measure]
        expected = [3 * value + 7 for value in (made.point, made.low, made.high)]
        assert [moved.point, moved.low, moved.high] == pytest.approx(expected, abs=1e-9)


@given(SCORES)
def test_percentile_intervals_of_a_mean_hold_it(scores_ST: Floats) -> None:
    found = estimates(scores_ST)["mean"]
    assert found.low - 1e-12 <= found.point <= found.high + 1e-12


def test_a_draw_counts_as_many_units_as_there_are() -> None:
    rng = np.random.default_rng(0)
    first, second = bootstrap.count_draws([3, 7], 2000, rng)
    assert (first.sum(axis=1) == 3).all() and (second.sum(axis=1) == 7).all()
    # Each unit is drawn n times a draw's 1/n: a mean of 1, with variance (1 - 1/n).
    error = ERRORS * np.sqrt((1 - 1 / 7) / 2000)
    assert np.abs(second.mean(axis=0) - 1).max() < error


def test_few_seeds_are_told_with_what_to_do() -> None:
    told = estimates(random_scores(4, 2))["mean"].warnings
    assert any("4 seeds, fewer than 5" in text and "method=t" in text for text in told)
    assert not any("fewer" in text for text in estimates(random_scores(5, 2))["mean"].warnings)


def test_scores_without_any_spread_are_told() -> None:
    made = estimates(np.ones((5, 2)))["mean"]
    assert (made.low, made.high) == pytest.approx((1.0, 1.0), abs=1e-12)
    assert any("without width" in text for text in made.warnings)


def test_a_result_says_on_what_it_stands() -> None:
    text = estimates(random_scores(6, 2))["mean"].text(2)
    assert text.endswith("(95% percentile, 6 seeds, 2 tasks)")


def rliable_four(scores: Floats) -> Floats:
    measures = (
        metrics.aggregate_iqm,
        metrics.aggregate_median,
        metrics.aggregate_mean,
        metrics.aggregate_optimality_gap,
    )
    return np.array([measure(scores) for measure in measures])


def within_error(ends: Floats, drawn_RM: Floats, repetitions: int) -> bool:
    """Whether other ends can be quantiles of as many draws from what ours were drawn from.

    A quantile of R draws lies, whatever the distribution, where its share is off by no more than
    some sqrt(p (1 - p) / R). Both sides have that error.
    """
    error = ERRORS * np.sqrt(0.025 * 0.975 * (1 / repetitions + 1 / len(drawn_RM)))
    held = []
    for end, share in zip(ends, (0.025, 0.975), strict=True):
        around = [max(share - error, 0.0), min(share + error, 1.0)]
        low, high = np.quantile(drawn_RM, around, axis=0)
        held.append(((low - 1e-12 <= end) & (end <= high + 1e-12)).all())
    return all(held)


@pytest.mark.parametrize("shape", [(10, 6), (5, 3), (3, 1)])
def test_aggregates_and_their_ends_are_those_of_rliable(shape: tuple[int, int]) -> None:
    scores_ST = np.random.default_rng(1).random(shape)
    np.random.seed(0)  # rliable ignores its random_state
    theirs, ends = library.get_interval_estimates({"a": scores_ST}, rliable_four, reps=1000)
    options = Options(repetitions=20_000)
    ours = list(estimates(scores_ST, options).values())
    assert [made.point for made in ours] == pytest.approx(theirs["a"], abs=1e-12)
    scores = scores_of("a", scores_ST)

    def four(weights: bootstrap.Weights) -> Floats:
        weights_NR = scores.pooled(weights)
        return np.concatenate(
            [measure(scores, weights_NR) for measure in MEASURES.values()], axis=1
        )

    drawn_RM = bootstrap.draws(four, scores.seeds, options, "aggregate", "a")
    assert within_error(ends["a"], drawn_RM, 1000)
    # The same bound holds off a distribution that is shifted by its own spread.
    assert not within_error(ends["a"] + drawn_RM.std(axis=0), drawn_RM, 1000)


BAD: list[tuple[str, Callable[[], object]]] = [
    (r"a\[1, 0\] is nan", lambda: estimates(np.array([[1.0], [np.nan]]))),
    (r"a\[0, 0\] is inf \(and 1 more\)", lambda: estimates(np.array([[np.inf], [np.inf]]))),
    ("a: 1 seed where an interval needs at least 2", lambda: estimates(np.ones((1, 3)))),
    ("a has 1 dimensions: pass an array with 2 or 3", lambda: estimates(np.ones(3))),
    ("a is empty", lambda: estimates(np.ones((0, 3)))),
    ("a has no tasks", lambda: aggregates({"a": {}}, QUICK)),
    ("a has scores of several frames", lambda: estimates(np.ones((3, 2, 2)))),
    (
        "tasks differ in their number of frames",
        lambda: aggregates({"a": {"x": [[1, 2], [2, 3]], "y": [1, 2]}}, QUICK),
    ),
    ("level=95: pass a share", lambda: Options(level=95)),
    ("repetitions=10: fewer than 1000", lambda: Options(repetitions=10)),
    ("seed=-1", lambda: Options(seed=-1)),
]


@pytest.mark.parametrize(("message", "call"), BAD, ids=[message for message, _ in BAD])
def test_what_cannot_be_is_refused_with_what_to_do(
    message: str, call: Callable[[], object]
) -> None:
    with pytest.raises(UserError, match=message):
        call()


def test_rows_of_different_lengths_are_refused_with_the_way_to_pass_them() -> None:
    ragged: object = [[1.0, 2.0], [1.0]]
    with pytest.raises(UserError, match="go into a mapping from task"):
        scores_of("a", ragged)  # type: ignore[arg-type]


def test_one_seed_has_points_and_no_interval() -> None:
    assert points(np.array([[1.0, 3.0]]))["mean"] == 2.0


@pytest.mark.pages
def test_the_example_of_the_docs_prints_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    page = Path(__file__).resolve().parents[3] / "docs" / "statistics.md"
    (code,) = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    exec(code, {})
    said = [line[2:] for line in code.splitlines() if line.startswith("# ")]
    assert capsys.readouterr().out.splitlines() == said

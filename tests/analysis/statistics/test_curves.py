"""Curves on a common grid, time to a target with runs that miss it, fronts and frontiers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.statistics.aggregates import aggregates
from rlhf_lab_analysis.statistics.crossings import Target, Times, first_crossing, times_to
from rlhf_lab_analysis.statistics.curves import (
    RunCurve,
    areas,
    common_range,
    curve_of,
    frontier_of,
    values_on_grid,
)
from rlhf_lab_analysis.statistics.pareto import front, hypervolume, is_on_front
from rlhf_lab_analysis.statistics.results import Method, Options
from rlhf_lab_analysis.statistics.survival import survival
from rlhf_lab_analysis.statistics.targets import time_to_target, times_ratio

QUICK = Options(repetitions=1000)
TARGET = Target("gold/win_rate", 0.5, "seconds/wall")


def curve(x: list[float], y: list[float]) -> RunCurve:
    return curve_of("run", x, y)


def test_runs_are_brought_to_the_range_that_all_measured() -> None:
    curves = [curve([0, 10, 20], [0, 1, 3]), curve([5, 15], [1, 2])]
    assert common_range(curves) == (5, 15)
    assert values_on_grid(curves, [5, 10, 15]).tolist() == [[0.5, 1, 2], [1, 1.5, 2]]


def test_areas_are_mean_heights_of_trapezoids() -> None:
    # 0 to 10 has mean 0.5 and 10 to 20 mean 2; of 5 to 15: (0.5+1)/2 and (1+2)/2, half each.
    made, within = areas([curve([0, 10, 20], [0, 1, 3])])
    assert made.tolist() == [1.25] and within == (0, 20)
    assert areas([curve([0, 10, 20], [0, 1, 3])], (5, 15))[0].tolist() == [1.125]


def test_the_first_crossing_is_interpolated_on_the_best_so_far() -> None:
    # The best so far is 0, .2, .2, .6: half-way up from .2 to .6 lies .4, at 25.
    run = curve([0, 10, 20, 30], [0.0, 0.2, 0.1, 0.6])
    assert first_crossing(run, Target("w", 0.4, "s")) == pytest.approx(25)
    assert first_crossing(run, Target("w", 0.6, "s")) == 30
    assert first_crossing(run, Target("w", 0.7, "s")) is None
    assert first_crossing(run, Target("w", -1.0, "s")) == 0


def test_a_target_below_is_crossed_from_above() -> None:
    run = curve([0, 10, 20], [4.0, 2.0, 1.0])
    assert first_crossing(run, Target("kl", 3.0, "s", rises=False)) == 5
    assert first_crossing(run, Target("kl", 0.5, "s", rises=False)) is None


def made_times(times: list[float], reached: list[bool], target: Target = TARGET) -> Times:
    return Times(target, tuple(range(len(times))), np.array(times), np.array(reached), ())


def test_kaplan_and_meier_by_hand() -> None:
    # 5 runs: reached at 2, left at 3, reached at 4 and 5, left at 6. After 2: 4/5. After 4, of 3
    # left: 4/5 * 2/3 = 8/15. After 5, of 2 left: 4/15.
    times, reached = np.array([4.0, 2, 6, 3, 5]), np.array([True, True, False, False, True])
    made = survival(times, reached, np.ones((1, 5)))
    assert made.time_S.tolist() == [2, 3, 4, 5, 6]
    assert made.left_RS[0] == pytest.approx([4 / 5, 4 / 5, 8 / 15, 4 / 15, 4 / 15])
    # Up to 6: 2 * 1 + 2 * 4/5 + 1 * 8/15 + 1 * 4/15. Half is passed at 5.
    assert made.restricted_mean(6)[0] == pytest.approx(2 + 8 / 5 + 8 / 15 + 4 / 15)
    assert made.restricted_mean(3)[0] == pytest.approx(2 + 4 / 5)
    assert made.median()[0] == 5


@given(
    st.lists(st.tuples(st.integers(1, 9), st.booleans()), min_size=2, max_size=9).filter(
        lambda runs: any(is_reached for _, is_reached in runs)
    )
)
def test_kaplan_and_meier_is_that_of_scipy(runs: list[tuple[int, bool]]) -> None:
    times = np.array([float(time) for time, _ in runs])
    reached = np.array([is_reached for _, is_reached in runs])
    made = survival(times, reached, np.ones((1, len(runs))))
    expected = stats.ecdf(stats.CensoredData.right_censored(times, ~reached)).sf
    for time in np.unique(times):
        last = int(np.flatnonzero(made.time_S == time)[-1])
        assert made.left_RS[0, last] == pytest.approx(float(expected.evaluate(time)), abs=1e-12)


def test_a_run_that_ends_when_another_reaches_it_still_counted_then() -> None:
    made = survival(np.array([2.0, 2.0]), np.array([False, True]), np.ones((1, 2)))
    assert made.left_RS[0].tolist() == [0.5, 0.5]


def test_a_weight_of_two_is_two_runs() -> None:
    times, reached = np.array([1.0, 2.0, 3.0]), np.array([True, False, True])
    twice = survival(times, reached, np.array([[2.0, 1.0, 0.0]]))
    alone = survival(np.array([1.0, 1.0, 2.0]), np.array([True, True, False]), np.ones((1, 3)))
    assert twice.restricted_mean(2.5)[0] == pytest.approx(alone.restricted_mean(2.5)[0])
    assert twice.median()[0] == alone.median()[0] == 1.0


@given(
    st.lists(st.tuples(st.integers(1, 20), st.booleans()), min_size=1, max_size=8),
    st.integers(1, 20),
)
def test_without_misses_before_the_horizon_it_is_the_mean_of_cut_times(
    runs: list[tuple[int, bool]], horizon: int
) -> None:
    times = np.array([float(time) for time, _ in runs])
    reached = np.array([is_reached or time < horizon for time, is_reached in runs])
    made = survival(times, reached, np.ones((1, len(runs))))
    assert made.restricted_mean(horizon)[0] == pytest.approx(np.minimum(times, horizon).mean())


def test_time_to_target_counts_runs_that_never_reach_it() -> None:
    curves = {
        1: curve([0, 100], [0.0, 1.0]),
        2: curve([0, 100], [0.0, 0.625]),
        3: curve([0, 100], [0.0, 0.4]),
    }
    times = times_to(TARGET, curves)
    assert times.time_S.tolist() == [50, 80, 100] and times.reached_S.tolist() == [
        True,
        True,
        False,
    ]
    made = time_to_target(times, QUICK)
    assert (made.reached, made.runs, made.horizon) == (2, 3, 100)
    assert made.restricted_mean.point == pytest.approx((50 + 80 + 100) / 3)
    assert made.median.point == 80 and made.median.high == np.inf and made.median.low == 50
    assert any("never at the target" in told and "[3]" in told for told in made.warnings)
    assert any("fewer than 5" in told for told in made.warnings)


def test_a_target_that_few_reach_has_no_median() -> None:
    made = time_to_target(made_times([10, 50, 50], [True, False, False]), QUICK)
    assert made.median.point == np.inf


def test_the_same_seed_gives_the_same_times() -> None:
    times = made_times([10, 20, 35, 50, 50], [True, True, True, False, False])
    assert time_to_target(times, QUICK) == time_to_target(times, QUICK)


def test_ratios_of_times_are_of_restricted_means() -> None:
    # A run of the first was followed to 50 in vain: means (20 + 50) / 2 and (10 + 25) / 2.
    before, after = made_times([20, 50], [True, False]), made_times([10, 25], [True, True])
    made = times_ratio(before, after, QUICK)
    assert made.name == "ratio of mean seconds/wall up to 50"
    assert made.point == pytest.approx(35 / 17.5)
    turned = times_ratio(after, before, QUICK)
    assert (1 / turned.high, 1 / turned.low) == pytest.approx((made.low, made.high))
    # The second was followed to 15 alone: (15 + 15) / 2 against (10 + 15) / 2.
    short = made_times([10, 15], [True, False])
    assert times_ratio(before, short, QUICK).point == pytest.approx(15 / 12.5)


def test_pairs_of_times_with_one_ratio_leave_no_doubt() -> None:
    before, after = made_times([20, 50, 30], [True] * 3), made_times([10, 25, 15], [True] * 3)
    made = times_ratio(before, after, QUICK)
    assert (made.low, made.point, made.high) == pytest.approx((2.0, 2.0, 2.0))
    other = Times(TARGET, (5, 6, 7), after.time_S, after.reached_S, ())
    apart = times_ratio(before, other, QUICK)
    assert apart.low < 2 < apart.high
    assert any("independent" in told for told in apart.warnings)


def test_members_of_a_front_by_hand() -> None:
    # b is dearer and worse than a; c is dearer and better; d is a's equal.
    cost, quality = np.array([[1.0, 2, 3, 1]]), np.array([[0.5, 0.4, 0.9, 0.5]])
    assert is_on_front(cost, quality)[0].tolist() == [True, False, True, True]
    # From 1 to 3 height .5, from 3 to 4 height .9.
    assert hypervolume(cost, quality, (4.0, 0.0))[0] == pytest.approx(2 * 0.5 + 1 * 0.9)
    assert hypervolume(cost, quality, (2.0, 0.4))[0] == pytest.approx(1 * 0.1)
    assert hypervolume(cost, quality, (0.5, 0.0))[0] == 0


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=2, max_size=6, unique=True)
)
def test_the_area_is_counted_in_squares(placed: list[tuple[int, int]]) -> None:
    cost = np.array([[float(one) for one, _ in placed]])
    quality = np.array([[float(two) for _, two in placed]])
    squares = sum(
        any(one <= x and two >= y + 1 for one, two in placed) for x in range(10) for y in range(10)
    )
    assert hypervolume(cost, quality, (10.0, 0.0))[0] == squares
    # Whoever is not a member adds nothing, and somebody always is.
    held = is_on_front(cost, quality)[0]
    assert held.any()
    assert hypervolume(cost[:, held], quality[:, held], (10.0, 0.0))[0] == squares


def costs(*pairs: tuple[float, float], seeds: int = 0) -> dict[int, tuple[float, float]]:
    return {seeds + place: pair for place, pair in enumerate(pairs)}


def test_membership_is_sure_where_conditions_lie_far_apart() -> None:
    made = front(
        {
            "slow": costs((10, 0.8), (11, 0.9), (12, 0.85)),
            "fast": costs((1, 0.5), (2, 0.6), (1.5, 0.55)),
            "bad": costs((20, 0.1), (21, 0.2), (22, 0.15)),
        },
        (30.0, 0.0),
        QUICK,
    )
    assert [point.condition for point in made.points] == ["fast", "slow", "bad"]
    assert [point.membership for point in made.points] == [1.0, 1.0, 0.0]
    assert [point.is_on_front for point in made.points] == [True, True, False]
    assert made.hypervolume.point == pytest.approx((11 - 1.5) * 0.55 + (30 - 11) * 0.85)
    assert made.hypervolume.low <= made.hypervolume.point <= made.hypervolume.high
    assert made.is_paired


def test_two_conditions_alike_are_members_by_chance() -> None:
    rng = np.random.default_rng(0)
    names = ("a", "b")
    values = {
        name: costs(
            *zip(rng.normal(5, 1, 20), rng.normal(5, 1, 20), strict=True), seeds=100 * place
        )
        for place, name in enumerate(names)
    }
    made = front(values, (20.0, 0.0), Options(repetitions=2000))
    assert not made.is_paired and any("independently" in told for told in made.warnings)
    assert all(0.1 < point.membership < 1 for point in made.points)
    assert front(values, (20.0, 0.0), Options(repetitions=2000)) == made


def test_a_condition_and_its_copy_share_their_draws() -> None:
    pairs = costs((1, 0.5), (3, 0.6), (2, 0.9))
    made = front({"a": pairs, "b": pairs}, (5.0, 0.0), QUICK)
    # In pairs of seeds they are equal in each draw, and none dominates the other.
    assert [point.membership for point in made.points] == [1.0, 1.0]


def test_the_front_is_of_the_statistic_that_its_points_have() -> None:
    """One seed of five failed: by means `b` is no better than `a`, by middle halves it is."""
    good = [0.90, 0.91, 0.92, 0.93]
    made = {
        "a": costs(*((1.0, 0.8 + place / 100) for place in range(5))),
        "b": costs(*((2.0, quality) for quality in (*good, 0.1))),
    }
    by_iqm, by_mean = (front(made, (3.0, 0.0), QUICK, measure) for measure in ("iqm", "mean"))
    assert [point.is_on_front for point in by_iqm.points] == [True, True]
    assert [point.is_on_front for point in by_mean.points] == [True, False]
    # Of five scores one is cut at each end.
    assert by_iqm.points[1].quality.point == pytest.approx(np.mean(good[:3]))
    assert by_mean.points[1].quality.point == pytest.approx(np.mean([*good, 0.1]))
    for point in (*by_iqm.points, *by_mean.points):
        assert point.quality.low <= point.quality.point <= point.quality.high
        assert point.cost.low == point.cost.high == point.cost.point


def test_intervals_of_a_front_are_those_of_the_measure_by_itself() -> None:
    rng = np.random.default_rng(1)
    pairs = {name: costs(*rng.normal(5, 1, (8, 2))) for name in ("a", "b")}
    made = front(pairs, (20.0, 0.0), Options(method=Method.t))
    for point in made.points:
        quality = {"": [value for _, value in pairs[point.condition].values()]}
        own = aggregates({"": quality}, Options(method=Method.t))[""]["iqm"]
        assert (point.quality.low, point.quality.point, point.quality.high) == pytest.approx(
            (own.low, own.point, own.high)
        )


def test_a_frontier_is_the_best_up_to_each_kl() -> None:
    made = frontier_of("a", [3.0, 0.0, 1.0, 2.0, 1.0], [0.6, 0.1, 0.3, 0.2, 0.4])
    assert made.x_P.tolist() == [0, 1, 2, 3]
    assert made.y_P.tolist() == [0.1, 0.4, 0.4, 0.6]


BAD: list[tuple[str, Callable[[], object]]] = [
    ("run: x goes from 2.0 to 1.0 at point 1", lambda: curve([2, 1], [0, 0])),
    (r"run y\[1\] is nan", lambda: curve([1, 2], [0, float("nan")])),
    ("lengths differ", lambda: curve([1, 2, 3], [0, 1])),
    ("no x is common", lambda: common_range([curve([0, 1], [0, 0]), curve([2, 3], [0, 0])])),
    ("no curves", lambda: common_range([])),
    ("grid point 2 is outside of 0 to 1", lambda: values_on_grid([curve([0, 1], [0, 0])], [2.0])),
    ("within=3, 2", lambda: areas([curve([0, 9], [0, 0])], (3, 2))),
    ("grid point 20 is outside", lambda: areas([curve([0, 9], [0, 0])], (3, 20))),
    ("no runs to look for gold/win_rate=0.5", lambda: times_to(TARGET, {})),
    ("begins below 0", lambda: times_to(TARGET, {1: curve([-1, 2], [0, 1])})),
    ("1 seed where", lambda: time_to_target(made_times([1.0], [True]), QUICK)),
    (
        "compare times to one target",
        lambda: times_ratio(
            made_times([1, 2], [True, True]),
            made_times([1, 2], [True, True], Target("gold/win_rate", 0.6, "seconds/wall")),
            QUICK,
        ),
    ),
    (
        "is reached at 0",
        lambda: times_ratio(
            made_times([0, 2], [True, True]), made_times([1, 2], [True, True]), QUICK
        ),
    ),
    ("1 conditions", lambda: front({"a": costs((1, 1), (1, 2))}, (2, 0), QUICK)),
    ("measure=most: pass one of iqm", lambda: front({}, (2, 0), QUICK, "most")),
    (
        r"b\[0, 1\] is nan",
        lambda: front(
            {"a": costs((1, 1), (1, 2)), "b": costs((1, float("nan")), (1, 1))}, (2, 0), QUICK
        ),
    ),
]


@pytest.mark.parametrize(("message", "call"), BAD, ids=[message for message, _ in BAD])
def test_what_cannot_be_is_refused_with_what_to_do(
    message: str, call: Callable[[], object]
) -> None:
    with pytest.raises(UserError, match=message):
        call()

"""Curves on a common grid, fronts and frontiers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.statistics.aggregates import aggregates
from rlhf_lab_analysis.statistics.curves import (
    RunCurve,
    areas,
    common_range,
    curve_of,
    frontier_of,
    values_on_grid,
)
from rlhf_lab_analysis.statistics.pareto import front, is_on_front
from rlhf_lab_analysis.statistics.results import Method, Options

QUICK = Options(repetitions=1000)


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


def test_members_of_a_front_by_hand() -> None:
    # b is dearer and worse than a; c is dearer and better; d is a's equal.
    cost, quality = np.array([[1.0, 2, 3, 1]]), np.array([[0.5, 0.4, 0.9, 0.5]])
    assert is_on_front(cost, quality)[0].tolist() == [True, False, True, True]


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=2, max_size=6, unique=True)
)
def test_what_is_on_no_front_is_dominated_by_what_is(placed: list[tuple[int, int]]) -> None:
    cost = np.array([[float(one) for one, _ in placed]])
    quality = np.array([[float(two) for _, two in placed]])
    held = is_on_front(cost, quality)[0]
    best = [pair for pair, is_held in zip(placed, held, strict=True) if is_held]
    for x, y in placed:
        others = [pair for pair in best if pair != (x, y)]
        assert ((x, y) not in best) == any(a <= x and b >= y for a, b in others)


def costs(*pairs: tuple[float, float], seeds: int = 0) -> dict[int, tuple[float, float]]:
    return {seeds + place: pair for place, pair in enumerate(pairs)}


def test_membership_is_sure_where_conditions_lie_far_apart() -> None:
    made = front(
        {
            "slow": costs((10, 0.8), (11, 0.9), (12, 0.85)),
            "fast": costs((1, 0.5), (2, 0.6), (1.5, 0.55)),
            "bad": costs((20, 0.1), (21, 0.2), (22, 0.15)),
        },
        QUICK,
    )
    assert [point.condition for point in made.points] == ["fast", "slow", "bad"]
    assert [point.membership for point in made.points] == [1.0, 1.0, 0.0]
    assert [point.is_on_front for point in made.points] == [True, True, False]
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
    made = front(values, Options(repetitions=2000))
    assert not made.is_paired and any("independently" in told for told in made.warnings)
    assert all(0.1 < point.membership < 1 for point in made.points)
    assert front(values, Options(repetitions=2000)) == made


def test_a_condition_and_its_copy_share_their_draws() -> None:
    pairs = costs((1, 0.5), (3, 0.6), (2, 0.9))
    made = front({"a": pairs, "b": pairs}, QUICK)
    # In pairs of seeds they are equal in each draw, and none dominates the other.
    assert [point.membership for point in made.points] == [1.0, 1.0]


def test_the_front_is_of_the_statistic_that_its_points_have() -> None:
    """One seed of five failed: by means `b` is no better than `a`, by middle halves it is."""
    good = [0.90, 0.91, 0.92, 0.93]
    made = {
        "a": costs(*((1.0, 0.8 + place / 100) for place in range(5))),
        "b": costs(*((2.0, quality) for quality in (*good, 0.1))),
    }
    by_iqm, by_mean = (front(made, QUICK, measure) for measure in ("iqm", "mean"))
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
    made = front(pairs, Options(method=Method.t))
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
    ("1 conditions", lambda: front({"a": costs((1, 1), (1, 2))}, QUICK)),
    ("measure=most: pass one of iqm", lambda: front({}, QUICK, "most")),
    (
        r"b\[0, 1\] is nan",
        lambda: front({"a": costs((1, 1), (1, 2)), "b": costs((1, float("nan")), (1, 1))}, QUICK),
    ),
]


@pytest.mark.parametrize(("message", "call"), BAD, ids=[message for message, _ in BAD])
def test_what_cannot_be_is_refused_with_what_to_do(
    message: str, call: Callable[[], object]
) -> None:
    with pytest.raises(UserError, match=message):
        call()

"""The group-sequential permutation test; tests/oracle holds it against AdaStop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.statistics.arrays import Floats
from rlhf_lab_analysis.statistics.plans import Bound, Decision, Plan
from rlhf_lab_analysis.statistics.relabel import bound_of, labelings, looks, sums_of
from rlhf_lab_analysis.statistics.sequential import sequential

CLAIMS = {Decision.larger, Decision.smaller}


def test_all_labelings_are_tried_where_they_are_few() -> None:
    labels, is_exact = labelings(2, 2, 1000, 0)
    # 6 ways to choose 2 of 4, in each of 2 interims.
    assert is_exact and labels.shape == (36, 2, 4)
    assert (labels.sum(axis=2) == 2).all()
    assert len({row.tobytes() for row in labels}) == 36
    assert labels[0].tolist() == [[True, True, False, False]] * 2


def test_random_labelings_begin_with_the_true_one() -> None:
    labels, is_exact = labelings(5, 3, 2000, 0)
    assert not is_exact and labels.shape == (2000, 3, 10)
    assert (labels.sum(axis=2) == 5).all()
    assert labels[0].tolist() == [[True] * 5 + [False] * 5] * 3


def test_a_bound_is_counted_by_hand() -> None:
    # One value exceeds 3, three exceed 1.
    values = np.array([1.0, 3.0, 2.0, 3.0, 5.0])
    assert bound_of(values, 1) == (3.0, 1)
    assert bound_of(values, 2) == (3.0, 1)
    assert bound_of(values, 3) == (2.0, 3)
    assert bound_of(values, 0.9) == (np.inf, 0)


def test_one_interim_is_the_permutation_test_by_hand() -> None:
    # 4, 5, 6 against 1, 2, 3: of 20 choices two are as far apart.
    labels, _ = labelings(3, 1, 1000, 0)
    sums_RK = sums_of(np.array([4.0, 5, 6]), np.array([1.0, 2, 3]), labels)
    # Of a range of 5 the means are 3 apart, and with labels turned round -3.
    assert sums_RK[0, 0] == pytest.approx(3 / 5)
    assert (np.abs(sums_RK) == sums_RK[0]).sum() == 2 and (sums_RK == sums_RK[0]).sum() == 1
    (look,) = looks([(sums_RK, True)], 0.15, 1)
    assert (look.p, look.is_rejected, look.errors) == (0.1, True, np.inf)
    (look,) = looks([(sums_RK, True)], 0.099, 1)
    assert not look.is_rejected


def test_what_an_earlier_interim_spent_counts_at_the_next() -> None:
    # 2 seeds, 2 interims: 6 labelings, then 36. At the first a third of .8 / 2 = .4 may be spent.
    first, second = np.array([3.0, 4.0, 3.0, 4.0]), np.array([1.0, 2.0, 1.0, 2.0])
    sums = [
        (sums_of(first[:2], second[:2], labelings(2, 1, 1000, 0)[0]), True),
        (sums_of(first, second, labelings(2, 2, 1000, 0)[0]), True),
    ]
    # |differences| of 1 2 3 4 in twos: 2 1 0 0 1 2, so a third is as large as the true one.
    (only,) = looks(sums[:1], 0.8, 2)
    assert only.p == pytest.approx(2 / 6) and only.is_rejected
    one, two = looks(sums, 0.5, 2)
    # Level .25 allows one of 6 above the bound, and ties make it none. All 36 go on; 2 of them
    # add up to as much.
    assert not one.is_rejected
    assert two.p == pytest.approx(2 / 36) and two.is_rejected


def scores(seed: int, **means: float) -> dict[str, Floats]:
    rng = np.random.default_rng(seed)
    return {name: rng.normal(mean, 1, 15) for name, mean in means.items()}


PLAN = Plan(seeds=5, interims=3, permutations=3000)


def test_conditions_far_apart_are_decided_at_once_and_need_no_more() -> None:
    data = {name: values[:5] for name, values in scores(0, a=0, b=30).items()}
    made = sequential(data, PLAN)
    assert made.pairs["a", "b"].decision is Decision.smaller
    assert made.is_finished and made.interims == 1 and not made.need_more


def test_an_open_pair_asks_for_more_seeds_of_its_conditions_alone() -> None:
    data = {name: values[:10] for name, values in scores(1, a=0, b=0.5, far=50).items()}
    made = sequential(data, PLAN)
    assert made.pairs["a", "far"].decision is made.pairs["b", "far"].decision is Decision.smaller
    assert made.pairs["a", "b"].decision is Decision.undecided
    assert made.need_more == ("a", "b") and not made.is_finished
    # far is decided, so the others go on without new seeds of it.
    longer = scores(1, a=0, b=0.5, far=50)
    later = sequential(longer | {"far": longer["far"][:10]}, PLAN)
    assert later.interims == 3 and later.is_finished
    assert later.pairs["a", "far"] == made.pairs["a", "far"]


def test_at_the_last_interim_no_difference_shown_is_not_equality() -> None:
    made = sequential(scores(2, a=0, b=0), PLAN)
    assert made.pairs["a", "b"].decision is Decision.not_shown
    assert made.is_finished and made.interims == 3


@given(st.integers(0, 50))
def test_what_was_decided_stays_decided_when_seeds_come(key: int) -> None:
    data = scores(key, a=0, b=1.0, c=3.0)
    before: dict[Any, Decision] = {}
    for seeds in (5, 10, 15):
        made = sequential({name: values[:seeds] for name, values in data.items()}, PLAN)
        for pair, decision in before.items():
            if decision in CLAIMS:
                assert made.pairs[pair].decision is decision
        before = {pair: result.decision for pair, result in made.pairs.items()}


def test_decisions_do_not_depend_on_scale_and_turn_round() -> None:
    data = scores(3, a=0, b=1.5, c=3.0)
    made = sequential(data, PLAN)
    scaled = sequential({name: 1e-6 * values + 7 for name, values in data.items()}, PLAN)
    turned = sequential({name: -values for name, values in data.items()}, PLAN)
    assert any(result.decision in CLAIMS for result in made.pairs.values())
    turn = {Decision.larger: Decision.smaller, Decision.smaller: Decision.larger}
    for pair, result in made.pairs.items():
        assert scaled.pairs[pair].decision is result.decision
        assert turned.pairs[pair].decision is turn.get(result.decision, result.decision)


def test_the_same_seed_gives_the_same_result_and_others_the_same_decisions() -> None:
    data = scores(4, a=0, b=2.0, c=4.0)
    assert sequential(data, PLAN) == sequential(data, PLAN)
    found = {
        tuple(result.decision for result in sequential(data, Plan(seed=seed)).pairs.values())
        for seed in range(3)
    }
    assert len(found) == 1


def test_a_decision_that_hangs_on_chance_is_told() -> None:
    # Searched: a p-value that is near its level at the second interim, where labels are random.
    told = []
    for key in range(60):
        data = {name: values[:10] for name, values in scores(key, a=0, b=1.0).items()}
        made = sequential(data, Plan(seeds=5, interims=2, permutations=1000))
        told += [text for text in made.warnings if "Monte Carlo errors" in text]
        near = min(look.errors for look in made.pairs["a", "b"].looks) < 3
        assert near == any("Monte Carlo errors" in text for text in made.warnings)
    assert told


@pytest.mark.parametrize("names", ["ab", "abcd"])
def test_the_level_holds_over_all_pairs_and_interims(names: str) -> None:
    rng, claims, runs = np.random.default_rng(5), 0, 400
    plan = Plan(seeds=3, interims=2, alpha=0.1, permutations=1000)
    for _ in range(runs):
        made = sequential({name: rng.normal(size=6) for name in names}, plan)
        claims += any(result.decision in CLAIMS for result in made.pairs.values())
    assert claims / runs <= 0.1 + 5 * np.sqrt(0.1 * 0.9 / runs)
    assert claims > 0


def test_pairs_can_be_chosen_and_unused_seeds_are_told() -> None:
    data = scores(6, control=0, a=0.1, b=0.2)
    made = sequential(data | {"b": data["b"][:12]}, PLAN, [("a", "control"), ("b", "control")])
    assert set(made.pairs) == {("a", "control"), ("b", "control")}
    assert "b: the last 2 of its seeds were not looked at" in made.warnings


def one_interim(bound: Bound, alpha: float, **data: Any) -> dict[Any, Decision]:
    plan = Plan(seeds=2, interims=1, alpha=alpha, permutations=1000, bound=bound)
    return {pair: result.decision for pair, result in sequential(data, plan).pairs.items()}


def test_one_bound_for_all_pairs_by_hand() -> None:
    # 6 labelings of the seeds of each pair, the same for all; differences of means are
    #   a - b: -1 -1 0 0 1 1     a - c: -10 -1 0 0 1 10     b - c: -9 -1 0 0 1 9
    a, b, c = [1.0, 2.0], [2.0, 3.0], [11.0, 12.0]
    # The largest sizes are 10 1 0 0 1 10: the bound is 10 if 1 of 6 may exceed it, and 1 if 2 may.
    assert set(one_interim(Bound.joint, 0.33, a=a, b=b, c=c).values()) == {Decision.not_shown}
    found = one_interim(Bound.joint, 0.34, a=a, b=b, c=c)
    assert found["a", "c"] is found["b", "c"] is Decision.smaller
    # Then a - b is alone with sizes of 1 1 0 0 1 1, and its own of 1 is not above the bound of 1.
    assert found["a", "b"] is Decision.not_shown
    # Holm gives each of three pairs a third of the level, at which none of 6 may exceed a bound.
    assert set(one_interim(Bound.holm, 0.34, a=a, b=b, c=c).values()) == {Decision.not_shown}
    # With their signs the largest are -1 -1 0 0 1 10: half of the level suffices for a bound of 1.
    found = one_interim(Bound.adastop, 0.17, a=a, b=b, c=c)
    assert found["a", "c"] is found["b", "c"] is Decision.smaller
    assert found["a", "b"] is Decision.not_shown


@pytest.mark.parametrize("bound", Bound)
@given(key=st.integers(0, 50))
def test_any_bound_keeps_decisions_and_turns_with_the_scores(bound: Bound, key: int) -> None:
    data = scores(key, a=0, b=1.0, c=3.0)
    plan = Plan(seeds=5, interims=3, permutations=2000, bound=bound)
    before: dict[Any, Decision] = {}
    for seeds in (5, 10, 15):
        made = sequential({name: values[:seeds] for name, values in data.items()}, plan)
        for pair, decision in before.items():
            assert decision not in CLAIMS or made.pairs[pair].decision is decision
        before = {pair: result.decision for pair, result in made.pairs.items()}
    if bound is Bound.adastop:
        return  # its bound is not the same for turned scores
    scaled = sequential({name: 7 - 1e-3 * values for name, values in data.items()}, plan)
    turn = {Decision.larger: Decision.smaller, Decision.smaller: Decision.larger}
    for pair, decision in before.items():
        assert scaled.pairs[pair].decision is turn.get(decision, decision)


def test_one_pair_has_the_same_test_with_its_own_or_the_joint_bound() -> None:
    for key in range(40):
        data = {name: values[:9] for name, values in scores(key, a=0, b=1.0).items()}
        own, joint = (
            sequential(data, Plan(seeds=3, interims=3, permutations=8000, bound=bound)).pairs
            for bound in (Bound.holm, Bound.joint)
        )
        assert own == joint


BAD: list[tuple[str, Callable[[], object]]] = [
    ("seeds=1, interims=5", lambda: Plan(seeds=1)),
    ("alpha=5", lambda: Plan(alpha=5)),
    ("permutations=10", lambda: Plan(permutations=10)),
    ("a has 3 seeds, and an interim", lambda: sequential({"a": [1] * 3, "b": [1] * 5}, PLAN)),
    (r"b\[4\] is nan", lambda: sequential({"a": [1] * 5, "b": [1, 2, 3, 4, np.nan]}, PLAN)),
    ("no pairs to compare", lambda: sequential({"a": [1] * 5}, PLAN)),
    ("pass two of a, b", lambda: sequential({"a": [1] * 5, "b": [1] * 5}, PLAN, [("a", "c")])),
]  # fmt: skip


@pytest.mark.parametrize(("message", "call"), BAD, ids=[message for message, _ in BAD])
def test_what_cannot_be_is_refused_with_what_to_do(
    message: str, call: Callable[[], object]
) -> None:
    with pytest.raises(UserError, match=message):
        call()

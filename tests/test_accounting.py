"""Budget, recipe, learning rate and ledger: who writes what, when, and what it costs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlhf_lab.ledger import Ledger
from rlhf_lab.optim import Optim, Per, Schedule
from rlhf_lab.recipe import Recipe
from rlhf_lab.rollout.budget import StalenessBudget
from rlhf_lab.rollout.mode import ExecutorKind, Mode
from rlhf_lab.types import UserError


@given(st.integers(0, 6), st.integers(1, 4), st.integers(1, 12))
def test_every_chunk_is_admitted_once_by_the_version_of_the_closed_form(
    staleness: int, per_round: int, num_rounds: int
) -> None:
    budget = StalenessBudget(staleness, per_round, num_rounds)
    written = {}
    for version in range(num_rounds):
        for number in budget.admit(version):
            assert number not in written
            written[number] = version
        assert set(range((version + 1) * per_round)) <= set(written)
    assert sorted(written) == list(range(num_rounds * per_round))
    for number, version in written.items():
        assert version == budget.version_of(number // per_round)
        assert version == max(0, number // per_round - staleness)


def test_a_budget_must_divide_into_rounds() -> None:
    assert Recipe(updates=256, updates_per_round=4, passes=2).num_rounds == 32
    with pytest.raises(UserError, match=r"run.updates=10 is not divisible .* 8 or 16"):
        Recipe(updates=10, updates_per_round=4, passes=2)


@pytest.mark.parametrize(
    "key", ["updates", "groups_per_update", "updates_per_round", "passes", "group_size"]
)
def test_the_four_numbers_are_at_least_one(key: str) -> None:
    with pytest.raises(UserError, match=f"run.{key}=0"):
        Recipe(**{key: 0})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_staleness": -1}, "mode.max_staleness=-1"),
        ({"name": "sync", "max_staleness": 2}, "pass mode=lagged"),
        ({"name": "async", "num_generators": 0}, "mode.num_generators=0"),
        ({"name": "lagged", "num_generators": 2}, "mode.executor=inline"),
    ],
)
def test_impossible_modes_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Mode(**options)  # type: ignore[arg-type]


def test_background_generators_are_counted() -> None:
    assert Mode().num_background == 0
    assert Mode("async", 1, ExecutorKind.process, 3).num_background == 3


def test_the_rate_moves_with_updates_or_with_rounds_as_published() -> None:
    per_update = Optim(lr=1.0 - 1e-9)
    assert per_update.learning_rate(0, 0, 256, 4) == pytest.approx(1.0)
    assert per_update.learning_rate(255, 3, 256, 4) == pytest.approx(1 / 256)
    per_round = Optim(lr=1.0 - 1e-9, schedule_per=Per.round)
    # N = 64 of the table in the published code: four rounds at .75 .5 .25 0
    rates = [per_round.learning_rate(64 * r, r, 256, 4) for r in range(4)]
    assert rates == pytest.approx([0.75, 0.5, 0.25, 0.0])


def test_schedules_and_warmup() -> None:
    constant = Optim(lr=0.5, schedule=Schedule.constant, warmup_updates=3)
    rates = [constant.learning_rate(update, 0, 10, 10) for update in range(5)]
    assert rates == pytest.approx([0.125, 0.25, 0.375, 0.5, 0.5])
    cosine = Optim(lr=0.5, schedule=Schedule.cosine)
    assert cosine.learning_rate(5, 0, 10, 10) == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"lr": 0.0}, "optim.lr"), ({"max_grad_norm": 0.0}, "optim.max_grad_norm")],
)
def test_optimizer_options_out_of_range_are_refused(
    options: dict[str, float], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        Optim(**options)  # type: ignore[arg-type]


def test_the_ledger_splits_the_wall_clock() -> None:
    now = [0.0]
    clock = lambda: now[0]  # noqa: E731
    ledger = Ledger(2, 1, policy_parameters=10, reward_parameters=5, clock=clock)

    def sleep(seconds: float) -> None:
        now[0] += seconds

    with ledger.span("take"):
        sleep(3)
    with ledger.span("train"):
        sleep(2)
    ledger.count(prefill_tokens=4, generated_tokens=6, reference_tokens=10)
    ledger.count(trained_tokens=7, scored_tokens=3)
    ledger.add_seconds({"generate": 1.5, "score": 0.5})
    totals = ledger.totals(seconds_in_caller=0.0)
    assert totals["seconds/wall"] == 5
    assert totals["seconds/device"] == 10
    assert totals["seconds/wait"] == 3
    assert totals["seconds/generator_wait"] == 3
    assert totals["seconds/train"] == 2
    assert totals["seconds/other"] == 0
    assert totals["total/flops"] == (2 * 20 + 6 * 7) * 10 + 2 * 3 * 5


def test_a_trainer_that_generates_by_itself_does_not_wait() -> None:
    now = [0.0]
    ledger = Ledger(1, 0, policy_parameters=1, clock=lambda: now[0])
    with ledger.span("take"):
        now[0] += 4
    ledger.add_seconds({"generate": 3.0, "score": 0.5})
    totals = ledger.totals(seconds_in_caller=3.5)
    assert totals["seconds/wait"] == totals["seconds/generator_wait"] == 0
    assert totals["seconds/other"] == 0.5

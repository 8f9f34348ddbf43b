"""Budget, recipe, learning rate and ledger: who writes what, when, and what it costs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlhf_lab.rollout.budget import StalenessBudget
from rlhf_lab.rollout.mode import ExecutorKind, Mode, OnFailure, WeightPolicy, WhenStale
from rlhf_lab.runs.verification import overlong_phases
from rlhf_lab.training.ledger import Ledger
from rlhf_lab.training.optim import Optim, Per, Schedule
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.rollouts import Chunk, Rollout, Span
from rlhf_lab.types.run_options import RunOptions


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
        assert version == budget.version_of(number)
        assert version == max(0, number // per_round - staleness)


def test_a_budget_must_divide_into_rounds() -> None:
    assert RunOptions(updates=256, updates_per_round=4, passes=2).num_rounds == 32
    with pytest.raises(UserError, match=r"run.updates=10 is not divisible .* 8 or 16"):
        RunOptions(updates=10, updates_per_round=4, passes=2)


@pytest.mark.parametrize(
    "key", ["updates", "groups_per_update", "updates_per_round", "passes", "group_size"]
)
def test_the_four_numbers_are_at_least_one(key: str) -> None:
    with pytest.raises(UserError, match=f"run.{key}=0"):
        RunOptions(**{key: 0})  # type: ignore[arg-type]


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
    [({"lr": 0.0}, "optim.lr"), ({"max_grad_norm": -1.0}, "optim.max_grad_norm")],
)
def test_optimizer_options_out_of_range_are_refused(
    options: dict[str, float], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        Optim(**options)  # type: ignore[arg-type]


def rollout(generate: float, score: float) -> Rollout:
    """Nothing generated, in so many seconds."""
    spans = (Span("generate", 0.0, generate), Span("score", generate, generate + score))
    return Rollout(Chunk(0, 0, (), 2), (), ((0, 0),), {"generated_tokens": 0}, spans)


def test_the_ledger_splits_the_wall_clock() -> None:
    now = [0.0]
    clock = lambda: now[0]  # noqa: E731
    ledger = Ledger(2, 1, policy_parameters=10, reward_parameters=5, clock=clock)

    def sleep(seconds: float) -> None:
        now[0] += seconds

    with ledger.span("take", 0, 0):
        sleep(3)
    with ledger.span("update", 0, 0):
        sleep(2)
    ledger.count(prefill_tokens=4, generated_tokens=6, reference_tokens=10)
    ledger.count(trained_tokens=7, scored_tokens=3, gradient_tokens=2)
    ledger.count_rollout(rollout(1.5, 0.5))
    totals = ledger.totals(seconds_in_caller=0.0)
    assert totals["seconds/wall"] == 5
    assert totals["seconds/device"] == 10
    assert totals["seconds/wait"] == 3
    assert totals["seconds/generator_wait"] == 3
    assert totals["seconds/train"] == 2
    assert totals["seconds/other"] == 0
    assert [(e["lane"], e["phase"], e["start"], e["end"]) for e in ledger.drain()] == [
        ("trainer", "take", 0, 3),
        ("trainer", "update", 3, 5),
        ("trainer", "generate", 0, 1.5),
        ("trainer", "score", 1.5, 2),
    ]
    assert ledger.drain() == []
    assert totals["total/flops"] == (2 * 20 + 6 * 9) * 10 + 2 * 3 * 5


def test_a_trainer_that_generates_by_itself_does_not_wait() -> None:
    now = [0.0]
    ledger = Ledger(1, 0, policy_parameters=1, clock=lambda: now[0])
    with ledger.span("take", 0, 0):
        now[0] += 4
    ledger.count_rollout(rollout(3.0, 0.5))
    totals = ledger.totals(seconds_in_caller=3.5)
    assert totals["seconds/wait"] == totals["seconds/generator_wait"] == 0
    assert totals["seconds/other"] == 0.5


def test_a_token_that_is_lost_or_used_twice_breaks_the_ledger() -> None:
    ledger = Ledger(1, 0, policy_parameters=1)
    ledger.count(kept_tokens=10, tied_tokens=4, dropped_tokens=3)
    ledger.check_tokens(generated=19, in_flight=2)
    for generated in (18, 20):
        with pytest.raises(RuntimeError, match=f"{generated} generated, but 10 kept . 4 tied"):
            ledger.check_tokens(generated, in_flight=2)


def test_a_restored_ledger_counts_on_and_knows_what_was_lost() -> None:
    now = [100.0]
    clock = lambda: now[0]  # noqa: E731
    first = Ledger(1, 0, policy_parameters=1, clock=clock)
    first.count(updates=3)
    now[0] += 7
    saved = json.loads(json.dumps(first.state(0.0)))
    now[0] = 5000.0
    second = Ledger(1, 0, policy_parameters=1, clock=clock)
    # The last row of the run that was killed was written at 9 seconds: 2 were done in vain.
    second.restore(saved, wall=9.0)
    second.count(updates=1)
    now[0] += 1
    totals = second.totals(0.0)
    assert totals["total/updates"] == 4
    assert totals["seconds/wall"] == 10
    assert totals["seconds/lost"] == 2


@pytest.mark.parametrize("background", [(0, 0), (1, 1), (0, 1), (1, 0)])
def test_the_phases_of_a_resumed_run_are_its_wall_clock(background: tuple[int, int]) -> None:
    """Rounds of 4 s of generation within 5 s of waiting, 2 s of updates and 1 s of nothing; the
    first process is killed 3 s after its checkpoint."""
    now = [50.0]
    saved: dict[str, Any] = {}
    wall = 0.0
    for number, count in enumerate(background):
        ledger = Ledger(1, count, policy_parameters=1, clock=lambda: now[0])
        if saved:
            ledger.restore(json.loads(json.dumps(saved)), wall)
        in_caller = 0.0
        for _ in range(3):
            with ledger.span("take", 0, 0):
                now[0] += 5
            ledger.count_rollout(rollout(3.0, 1.0))
            in_caller += 0.0 if count else 4.0
            with ledger.span("update", 0, 0):
                now[0] += 2
            now[0] += 1
        totals = ledger.totals(in_caller)
        saved, wall = ledger.state(in_caller), ledger.wall + 3
        rounds = 3 * (number + 1)
        alone = 3 * (not background[0]) + 3 * (not count) * number
        assert totals["seconds/wall"] == 8 * rounds + 3 * number
        assert totals["seconds/lost"] == 3 * number
        assert totals["seconds/wait"] == 5 * (rounds - alone)
        assert totals["seconds/other"] == rounds + alone
        assert list(overlong_phases(totals)) == []
        now[0] += 1000


def test_a_checkpoint_without_the_sum_of_own_generation_counts_none_of_it_again() -> None:
    now = [0.0]
    first = Ledger(1, 0, policy_parameters=1, clock=lambda: now[0])
    with first.span("take", 0, 0):
        now[0] += 4
    now[0] += 2
    first.count_rollout(rollout(3.0, 0.5))
    saved = {key: one for key, one in first.state(3.5).items() if key not in ("in_caller", "wait")}
    second = Ledger(1, 0, policy_parameters=1, clock=lambda: now[0])
    second.restore(saved, wall=6.0)
    # What a queue holds is not among the rollouts yet, and `take` has its seconds too.
    assert second.totals(0.0)["seconds/other"] == 2


def test_drawn_lags_admit_every_chunk_once_at_its_own_version() -> None:
    lags = [0, 2, 1, 0, 2, 2, 1, 0, 1, 2]
    budget = StalenessBudget(2, 2, 5, lag=lags.__getitem__)
    written = {n: version for version in range(5) for n in budget.admit(version)}
    assert written == {n: max(0, n // 2 - lags[n]) for n in range(10)}


def test_a_refund_admits_one_more_chunk_even_at_the_end() -> None:
    budget = StalenessBudget(1, 2, 3)
    assert [budget.admit(v) for v in range(3)] == [[0, 1, 2, 3], [4, 5], []]
    budget.refund()
    assert budget.admit(2) == [6]


def test_a_restored_budget_admits_nothing_twice_and_nothing_in_a_burst() -> None:
    budget = StalenessBudget(2, 3, 8)
    budget.admit(0)
    saved = json.loads(json.dumps(budget.state()))
    resumed = StalenessBudget(2, 3, 8)
    resumed.restore(saved)
    assert resumed.admit(0) == []
    assert resumed.admit(1) == budget.admit(1) == [9, 10, 11]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weights": WeightPolicy.latest}, "pass mode=free"),
        ({"when_stale": WhenStale.drop}, "mode.when_stale=drop"),
        ({"schedule": "runs/x"}, "mode.schedule=runs/x"),
        ({"on_generator_failure": OnFailure.restart}, "mode.executor=process"),
        ({"hang_seconds": 0.0}, "mode.hang_seconds=0.0"),
        ({"max_restarts": -1}, "mode.max_restarts=-1"),
        ({"prefetch": 0}, "mode.prefetch=0"),
        ({"name": "lagged", "max_staleness": 1, "lag_probabilities": "1"}, "pass 2 numbers"),
        ({"name": "lagged", "max_staleness": 1, "lag_probabilities": "0.5,0.6"}, "sum to 1"),
        ({"name": "lagged", "max_staleness": 1, "lag_probabilities": "a,b"}, "'a,b'"),
        (
            {
                "name": "free",
                "executor": ExecutorKind.process,
                "weights": WeightPolicy.latest,
                "lag_probabilities": "1",
            },
            "pass mode=lagged",
        ),
    ],
)
def test_modes_that_contradict_themselves_are_refused(
    options: dict[str, object], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        Mode(**options)  # type: ignore[arg-type]

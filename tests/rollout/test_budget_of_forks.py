"""Which version writes a chunk in a fork, by numbers worked out by hand."""

from __future__ import annotations

import torch

from rlhf_lab.rollout.budget import StalenessBudget
from rlhf_lab.rollout.chunk_states import QueuedChunk
from rlhf_lab.training.checkpoint_files import Snapshot, along_schedule, forked
from rlhf_lab.types.data import Weights


def snapshot(round_: int, numbers: dict[int, int], budget: dict[str, object]) -> Snapshot:
    """A state with chunks on their way: number -> version."""
    queue = [QueuedChunk(number, version, True, None) for number, version in numbers.items()]
    weights = {round_: Weights(round_, {"a": torch.zeros(1)})}
    counters = {"budget": budget, "kl_coef": 0.2}
    return Snapshot(round_, weights, {}, counters, queue, {})


def test_a_larger_bound_fills_up_with_the_version_of_the_round() -> None:
    # Two chunks a round; S was 1, so that rounds 4 and 5 are on their way at round 4.
    parent = snapshot(4, {8: 3, 9: 3, 10: 4, 11: 4}, {"seen": 12, "refunds": 0, "held": []})
    begun = forked(parent, keeps_coefficient=True).counters
    assert begun["kl_coef"] == 0.2
    budget = StalenessBudget(3, chunks_per_round=2, num_rounds=20)
    budget.restore(begun["budget"])
    assert budget.admit(4) == [12, 13, 14, 15]
    assert [budget.version_of(number) for number in range(8, 18)] == [3, 3] + [4] * 6 + [5, 5]
    assert budget.admit(5) == [16, 17]
    # Versions 3 and 4 are kept until round 5, the last of inherited chunks, has been probed.
    assert [budget.inherited_lag(version) for version in (4, 5, 6, 7)] == [1, 2, 3, 0]


def test_a_smaller_bound_waits_until_what_is_on_its_way_is_used() -> None:
    parent = snapshot(4, {4: 2, 5: 3, 6: 4}, {"seen": 7, "refunds": 0, "held": []})
    begun = forked(parent, keeps_coefficient=False).counters
    assert "kl_coef" not in begun
    budget = StalenessBudget(0, chunks_per_round=1, num_rounds=20)
    budget.restore(begun["budget"])
    assert [budget.admit(version) for version in (4, 5, 6, 7)] == [[], [], [], [7]]
    assert [budget.version_of(number) for number in range(4, 9)] == [2, 3, 4, 7, 8]


def test_postponed_chunks_are_admitted_by_the_new_mode() -> None:
    parent = snapshot(4, {4: 2, 5: 4}, {"seen": 8, "refunds": 0, "held": [6, 7]})
    budget = StalenessBudget(1, chunks_per_round=1, num_rounds=20)
    budget.restore(forked(parent, keeps_coefficient=True).counters["budget"])
    assert [budget.admit(version) for version in (4, 5, 6, 7)] == [[], [6], [7], [8]]


def test_the_state_of_a_fork_comes_back() -> None:
    parent = snapshot(4, {4: 2, 5: 3}, {"seen": 6, "refunds": 0, "held": []})
    begun = forked(parent, keeps_coefficient=True)
    assert forked(begun, keeps_coefficient=True) is begun
    first, second = (StalenessBudget(2, chunks_per_round=1, num_rounds=20) for _ in range(2))
    first.restore(begun.counters["budget"])
    second.restore(first.state())
    assert second.state() == first.state()
    assert [second.version_of(number) for number in (4, 5, 6, 7)] == [2, 3, 4, 5]


def test_a_run_that_is_no_fork_has_the_state_that_it_always_had() -> None:
    budget = StalenessBudget(2, chunks_per_round=1, num_rounds=20)
    budget.admit(0)
    assert budget.state() == {"seen": 3, "refunds": 0, "held": []}


def test_a_replay_has_the_chunks_of_one_round() -> None:
    # Two chunks a round; three were dropped before round 2, whose first chunk is number 7.
    numbers = dict.fromkeys(range(7, 13), 1)
    found = along_schedule(snapshot(2, numbers, {"seen": 13, "refunds": 4, "held": []}), 2)
    assert found.counters["budget"] == {"seen": 9, "refunds": 3, "held": []}
    kept = [one for one in found.queue if isinstance(one, QueuedChunk)]
    assert [(one.number, one.is_refunded) for one in kept] == [(7, False), (8, False)]
    assert along_schedule(found, 2) == found

"""Prompts chosen by pass rate: hand-worked rounds, what a round may look at, and exact states."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rlhf_lab.tasks.prompts import EveryPrompt, PromptStream, RememberedPrompts
from rlhf_lab.types.data import Metrics
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.prompt_options import PromptChoice
from rlhf_lab.types.run_options import RunOptions
from rlhf_lab.types.samples import Example, Finish, Group, Sample


def stream(rows: int) -> PromptStream:
    examples = [Example(str(row), f"{row}=", "") for row in range(rows)]
    return PromptStream(examples, lambda row: [1, len(row.prompt)], 7, 8, shuffle=False)


def memory_of(rows: int, staleness: int = 0, **options: object) -> RememberedPrompts:
    given = {"updates": 64, "groups_per_update": 4, "group_size": 4}
    run_options = RunOptions(**given | options)  # type: ignore[arg-type]
    return RememberedPrompts(stream(rows), run_options, staleness)


def drawn(memory: RememberedPrompts, round_: int) -> list[int]:
    """The rows of a round of four places."""
    return [int(memory.prompt(round_, place).example.uid) for place in range(4)]


def observe(memory: RememberedPrompts, round_: int, rates: dict[int, float]) -> Metrics:
    """Tell the results of a round by row: of each, a group with this mean reward."""
    groups = []
    for place in range(4):
        prompt = memory.prompt(round_, place)
        sample = Sample((5,), (-0.5,), 0, Finish.eos, "a")
        rate = rates.get(int(prompt.example.uid))
        if rate is not None:
            solved = round(4 * rate)
            rewards = (1.0,) * solved + (0.0,) * (4 - solved)
            groups.append(Group(prompt, (sample,) * 4, rewards))
    return memory.observe(round_, groups)


POOL: dict[str, Any] = {"prompts": PromptChoice.pool, "rest_rounds": 2}
REPLAY: dict[str, Any] = {"prompts": PromptChoice.replay, "cooldown_rounds": 2, "max_repeats": 2}


def test_a_pool_rests_what_is_always_or_never_solved() -> None:
    memory = memory_of(6, **POOL)
    assert drawn(memory, 0) == [0, 1, 2, 3]
    observe(memory, 0, {0: 0.0, 1: 1.0, 2: 0.5, 3: 0.25})
    # 4, 5, then the next epoch without 0 and 1.
    assert drawn(memory, 1) == [4, 5, 2, 3]
    assert observe(memory, 1, {4: 1.0, 5: 0.75, 2: 0.5, 3: 0.0}) == {
        # Two passed over among six.
        "prompts/filtered": pytest.approx(2 / 6),
        "prompts/repeated": 0.0,
        "prompts/repeats": 0,
        "prompts/remembered": 4,
        "prompts/pass_rate": pytest.approx((0.0 + 1.0 + 0.5 + 0.25) / 4),
    }
    # 4, 0, 1 and 3 rest: 4x 5 0x 1x 2 3x 4x 5 0x, and after six passed over any, which is 1.
    assert drawn(memory, 2) == [5, 2, 5, 1]
    observe(memory, 2, {5: 0.5, 2: 0.5, 1: 0.0})
    # Round 0 is three rounds ago: 0 is back. 2 3x 4x 5 0 1x 2.
    assert drawn(memory, 3) == [2, 5, 0, 2]


def test_replay_draws_again_what_is_nearest_to_one_half() -> None:
    memory = memory_of(64, **REPLAY)
    assert drawn(memory, 0) == [0, 1, 2, 3]
    observe(memory, 0, {0: 0.25, 1: 0.5, 2: 0.75, 3: 0.5})
    # All of round 0 cool down.
    assert drawn(memory, 1) == [4, 5, 6, 7]
    observe(memory, 1, {4: 0.0, 5: 1.0, 6: 0.75, 7: 0.25})
    # 1 and 3 are at 1/2; 2 and 6, at 3/4, are above run.max_pass_rate.
    assert drawn(memory, 2) == [1, 3, 8, 9]
    assert observe(memory, 2, {1: 0.5, 3: 1.0, 8: 0.0, 9: 0.0}) == {
        "prompts/filtered": 0.0,
        "prompts/repeated": 0.5,
        "prompts/repeats": 2,
        "prompts/remembered": 8,
        "prompts/pass_rate": pytest.approx(4.0 / 8),
    }
    assert drawn(memory, 3) == [0, 7, 10, 11]
    observe(memory, 3, {0: 0.25, 7: 0.5, 10: 0.0, 11: 0.0})
    # 3 is solved by now; no other is ready.
    assert drawn(memory, 4) == [1, 12, 13, 14]
    observe(memory, 4, {1: 0.5, 12: 0.0, 13: 0.0, 14: 0.0})
    assert drawn(memory, 5) == [7, 0, 15, 16]
    observe(memory, 5, {7: 0.0, 0: 0.0})
    # 1 was drawn again twice, which is all.
    assert drawn(memory, 6) == [17, 18, 19, 20]


def test_a_pass_rate_is_the_mean_of_the_latest_groups() -> None:
    memory = memory_of(4, **POOL | {"pass_rate_window": 2})
    for round_, rate in enumerate((1.0, 0.5)):
        observe(memory, round_, {0: rate, 1: 0.5, 2: 0.5, 3: 0.5})
    drawn(memory, 2)
    # One group alone left nothing out. Of 1 and 1/2 the mean is 3/4; two groups of 1 do it.
    assert memory.state()["memories"][0][1] == [1.0, 0.5]
    observe(memory, 2, {0: 1.0, 1: 0.5, 2: 0.5, 3: 0.5})
    assert drawn(memory, 3) == [0, 1, 2, 3]
    observe(memory, 3, {0: 1.0, 1: 0.5, 2: 0.5, 3: 0.5})
    assert drawn(memory, 4) == [1, 2, 3, 1]


@pytest.mark.parametrize("staleness", [0, 1, 3])
def test_a_round_looks_at_results_that_are_certain_to_be_there(staleness: int) -> None:
    late, early = (memory_of(12, staleness, **REPLAY) for _ in range(2))
    rounds: dict[str, list[list[int]]] = {"late": [], "early": []}
    for round_ in range(8):
        # One draws when it must, the other as soon as a generator may ask.
        drawn(early, round_ + staleness)
        rates = {row: (row * 7 + round_) % 5 / 4 for row in range(12)}
        for name, memory in (("late", late), ("early", early)):
            rounds[name].append(drawn(memory, round_))
            observe(memory, round_, rates)
    assert rounds["late"] == rounds["early"]
    assert late.state()["draws"][0] == early.state()["draws"][0]
    with pytest.raises(RuntimeError, match="results up to round 8; those of round 7"):
        drawn(late, 9 + staleness)


@pytest.mark.parametrize("options", [POOL, REPLAY])
def test_a_state_goes_on_with_the_same_prompts(options: dict[str, Any]) -> None:
    def rates(round_: int) -> dict[int, float]:
        return {row: (row * 7 + round_) % 5 / 4 for row in range(10)}

    memory, again = (memory_of(10, 1, **options) for _ in range(2))
    for round_ in range(5):
        observe(memory, round_, rates(round_))
        drawn(memory, round_ + 2)
    state = json.dumps(memory.state())
    again.restore(json.loads(state))
    assert json.dumps(again.state()) == state
    for round_ in range(5, 9):
        assert drawn(memory, round_) == drawn(again, round_)
        assert observe(memory, round_, rates(round_)) == observe(again, round_, rates(round_))


def test_numbers_of_prompts_are_those_of_a_stream() -> None:
    memory, plain = memory_of(64, **REPLAY), EveryPrompt(stream(64), 4)
    for round_ in range(4):
        ids = [memory.prompt(round_, place).id for place in range(4)]
        assert ids == [plain.prompt(round_, place).id for place in range(4)]
        observe(memory, round_, dict.fromkeys(range(64), 0.5))
    assert plain.state() == {} and plain.observe(0, ()) == {}


def test_a_window_without_pass_rates_is_refused() -> None:
    with pytest.raises(
        UserError, match=r"run.min_pass_rate=0.8 with run.max_pass_rate=0.7: no pass rate"
    ):
        RunOptions(min_pass_rate=0.8)

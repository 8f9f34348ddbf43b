"""Demonstrations of episodes: their tokens, what is wrong with some, and the loss of SFT."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from rlhf_lab.models.options import scratch
from rlhf_lab.models.weights import load_weights
from rlhf_lab.rollout.generators.environment_calls import EnvironmentCalls
from rlhf_lab.rollout.generators.open_episode import Limits, episode_limits
from rlhf_lab.tasks.environment import Turn
from rlhf_lab.training.engines.options import SingleEngineOptions
from rlhf_lab.training.stages.demonstrations import Demonstrations
from rlhf_lab.training.stages.options import SFTOptions
from rlhf_lab.training.stages.supervised import train_sft
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import Episode, Example, Finish, Prompt
from tests.support.engine_cases import engine
from tests.support.environments import (
    EOS,
    TINY,
    Pieces,
    Play,
    Script,
    ids,
    prompt,
)

TURNS = [Turn("1;", -0.5, info={"calls": 1}), Turn("", 0.25), Turn("2", 1.0, is_done=True)]


def demonstrations(
    actions: Sequence[str], script: Sequence[Turn] = TURNS, first: str = "", **limits: Any
) -> Demonstrations:
    task = Play(lambda: Script(script, first), actions=actions, max_turn_tokens=4)
    chosen = replace(episode_limits(task, 10), **limits)
    return Demonstrations(task, Pieces(), chosen, lambda number: number, EnvironmentCalls())


def test_the_limits_of_a_task() -> None:
    assert episode_limits(Play(lambda: Script([])), 10) == Limits(3, 10, 4, 8)


@pytest.mark.parametrize("first", ["", "21"])
def test_a_demonstration_by_hand(first: str) -> None:
    learnt = demonstrations(["ab", "abc", ""], first=first)
    (group, other) = learnt.groups([prompt(0), prompt(7)])
    assert other.samples == group.samples and other.prompt.id == 7
    (sample,) = group.samples
    ab, c = (*ids("ab"), *ids("c"))
    assert sample.tokens == (ab, EOS, ab, c, EOS, EOS)
    assert sample.logps == (0.0,) * 6
    assert not sample.is_offline
    assert (sample.text, sample.finish) == ("", Finish.eos)
    one = tuple(ids("1;"))
    observed = ((0, tuple(ids("21"))), (2, one)) if first else ((2, one),)
    seen = (("environment", first),) if first else ()
    assert sample.episode == Episode(
        observed=observed,
        turns=((1, -0.5), (4, 0.25), (5, 1.0)),
        transcript=(
            *seen,
            ("policy", "ab"),
            ("environment", "1;"),
            ("policy", "abc"),
            ("policy", ""),
        ),
        info={"calls": 1.0},
        is_done=True,
    )


def test_an_environment_gets_the_seed_of_its_prompt() -> None:
    class Dice:
        def reset(self, example: Example, seed: int) -> str:
            return "1" * seed

        def step(self, action: str, finished: bool) -> Turn:
            assert finished
            return Turn(is_done=True)

    limits = Limits(1, 9, 9, 9)
    learnt = Demonstrations(
        Play(Dice, actions=["a"]), Pieces(), limits, lambda number: number % 5, EnvironmentCalls()
    )
    places = [group.samples[0].episode for group in learnt.groups([prompt(2), prompt(8)])]
    assert [len(one.observed[0][1]) for one in places if one] == [2, 3]


@pytest.mark.parametrize(
    ("actions", "limits", "complaint"),
    [
        (["ab", "abca", "c"], {}, None),
        (["ab", "12;1", "c"], {}, "action 2 of 5 tokens, where 4 are left: raise task.max_turn_to"),
        (["12", "12", "12", "1"], {"tokens": 8}, "action 3 of 3 tokens, where 2 are left: raise "),
        (["ab", "ab"], {}, "2 actions, which do not end its episode"),
        ([], {}, "0 actions, which do not end its episode"),
        (["a", "b", "c", "d"], {}, "4 actions, but its episode ends before"),
        (["a", "b", "c"], {"turns": 2}, "3 actions, but its episode ends before"),
        (["a", "b"], {"turns": 2}, "2 actions, which do not end its episode"),
        # All six tokens are spent when the third action is due.
        (["ab", "12;", "c"], {"tokens": 6}, "3 actions, but its episode ends before"),
    ],
)
def test_a_demonstration_must_fit_its_limits_and_end_with_its_episode(
    actions: list[str], limits: dict[str, Any], complaint: str | None
) -> None:
    learnt = demonstrations(actions, **limits)
    if complaint is None:
        assert learnt.groups([prompt(4)])
        return
    with pytest.raises(UserError) as refused:
        learnt.groups([prompt(4)])
    expected = f"task=play, row row/4: the demonstration has {complaint}"
    assert str(refused.value).startswith(expected)


def test_a_demonstration_may_not_be_answered_at_length() -> None:
    with pytest.raises(UserError, match=r"turn 1: an observation has 3 tokens, more than"):
        demonstrations(["a", "b", "c"], [Turn("1;1"), *TURNS[1:]], observation_tokens=2).groups(
            [prompt()]
        )


class Silent:
    """Where progress goes: nowhere."""

    def advance(self, amount: int = 1, **numbers: float) -> None:
        pass


def mean_nll(model: Any, prompts: Sequence[Prompt], learnt: Demonstrations) -> float:
    """Of the policy's tokens alone, by a pass over each text at the engine's temperature."""
    total, count = 0.0, 0
    for group in learnt.groups(prompts):
        (sample,) = group.samples
        context = list(group.prompt.tokens)
        for is_observed, tokens in sample.pieces():
            for token in tokens:
                if not is_observed:
                    with torch.no_grad():
                        logits = model(input_ids=torch.tensor([context])).logits[0, -1] / 0.7
                    total -= float(logits.log_softmax(-1)[token])
                    count += 1
                context.append(token)
    return total / count


def test_sft_learns_from_the_policys_tokens_alone() -> None:
    """Prompts and observations differ in length, so that a mean over rows is another number."""
    model = scratch(TINY, Pieces(), seed=3)
    begin = scratch(TINY, Pieces(), seed=3)
    learnt = demonstrations(["ab", "12", "c"])
    prompts = [prompt(n, "1;2;ab"[: 1 + n % 6]) for n in range(8)]
    held_out = [prompt(n, "abcd;;1"[: 2 + n % 5]) for n in range(3)]
    options = SFTOptions(steps=1, batch=8, lr=1e-2)
    made = engine(SingleEngineOptions(), "online_dpo", model)
    metrics, weights = train_sft(
        made, Pieces(), prompts, held_out, learnt.groups, options, Silent()
    )
    after = scratch(TINY, Pieces(), seed=4)
    load_weights(after, weights)
    # The loss of the only step is that of the model before it.
    first = mean_nll(begin, prompts, learnt)
    assert metrics["train_loss"] == pytest.approx(first, abs=1e-4)
    assert metrics["validation_loss"] == pytest.approx(mean_nll(after, held_out, learnt), abs=1e-4)
    assert metrics["validation_loss"] < mean_nll(begin, held_out, learnt) - 0.01

"""Mixtures keep their shares in every prefix and epoch, and dispatch to their tasks' rules."""

from __future__ import annotations

import numpy as np
import pytest

from rlhf_lab.tasks.arithmetic import Arithmetic
from rlhf_lab.tasks.mixture import Mixture, interleaved
from rlhf_lab.tasks.no_robots import NoRobots
from rlhf_lab.tasks.prompts import PromptStream
from rlhf_lab.training.round_metrics import task_rewards
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import MIXED_TASK, UNBEGUN, Group, Split

TASKS = {"sums": Arithmetic(operations="+"), "products": Arithmetic(operations="*")}
MIXTURE = Mixture(tasks=TASKS, weights={"sums": 3.0, "products": 1.0}, train_size=64)


def stream() -> PromptStream:
    return PromptStream(MIXTURE.examples(Split.train), lambda text: [1] * len(text), 1, 64)


@pytest.mark.parametrize("weights", [(1.0,), (3.0, 1.0), (0.7, 0.2, 0.1), (5.0, 1.0, 1.0, 0.01)])
def test_every_prefix_has_the_shares(weights: tuple[float, ...]) -> None:
    task, number = interleaved(weights, 500)
    assert len(task) == 500
    for index, weight in enumerate(weights):
        share = weight / sum(weights)
        due = share * np.arange(1, 501)
        found = np.cumsum(task == index)
        assert np.abs(found - due).max() <= (1 + share * len(weights)) / 2 + 1e-9
        assert list(number[task == index]) == list(range(found[-1]))


def test_prompts_are_the_same_from_any_start_and_every_epoch_is_whole() -> None:
    whole, later = stream(), stream()
    prompts = [whole[index] for index in range(128)]
    assert [later[index] for index in range(100, 128)] == prompts[100:]
    names = [prompt.example.hidden[MIXED_TASK] for prompt in prompts]
    assert all(names[start : start + 4].count("products") == 1 for start in range(0, 128, 4))
    epochs = [[p.example.uid for p in prompts[start : start + 64]] for start in (0, 64)]
    assert sorted(epochs[0]) == sorted(epochs[1]) and epochs[0] != epochs[1]
    assert len(set(epochs[0])) == 64


def test_the_rule_and_the_metrics_are_those_of_the_task() -> None:
    prompts = [stream()[index] for index in range(4)]
    for prompt in prompts:
        assert MIXTURE.judge(prompt.example, prompt.example.hidden["answer"], True) == 1.0
    groups = [
        Group(prompt, (UNBEGUN, UNBEGUN), (float(index), 0.0))
        for index, prompt in enumerate(prompts)
    ]
    names = [prompt.example.hidden[MIXED_TASK] for prompt in prompts]
    other = names.index("products")
    expected = {"reward/task/products": other / 2, "reward/task/sums": (6 - other) / 6}
    assert task_rewards(groups) == expected


def test_what_cannot_be_mixed_is_refused() -> None:
    with pytest.raises(UserError, match="give every task one weight"):
        Mixture(tasks=TASKS, weights={"sums": 1.0})
    with pytest.raises(UserError, match=r"task\.tasks\.chat=no_robots"):
        Mixture(tasks={"chat": NoRobots()}, weights={"chat": 1.0})

"""Mixtures keep their shares in every prefix and epoch, and dispatch to their tasks' rules."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from rlhf_lab.experiment.rules.checks import check
from rlhf_lab.experiment.run import lifecycle
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.tasks.arithmetic import Arithmetic
from rlhf_lab.tasks.mixture import Mixture, interleaved
from rlhf_lab.tasks.no_robots import NoRobots
from rlhf_lab.tasks.prompts import PromptStream
from rlhf_lab.tasks.tldr import Tldr
from rlhf_lab.training.round_metrics import task_rewards
from rlhf_lab.types.errors import StopRequested, UserError
from rlhf_lab.types.samples import MIXED_TASK, UNBEGUN, Example, Group, Split
from tests.conftest import Finished, MakeConfig
from tests.support.examples import FACTS
from tests.support.in_memory import memory_of, run_in_memory

TASKS = {"sums": Arithmetic(operations="+"), "products": Arithmetic(operations="*")}
MIXTURE = Mixture(tasks=TASKS, weights={"sums": 3.0, "products": 1.0}, train_size=64)


def stream() -> PromptStream:
    return PromptStream(MIXTURE.examples(Split.train), lambda row: [1] * len(row.prompt), 1, 64)


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
    with pytest.raises(UserError, match=r"task\.tasks\.long\.drop_long=True"):
        Mixture(tasks={"long": NoRobots(drop_long=True)}, weights={"long": 1.0})


RUN = ("task=mixture", "sft.steps=4", "run.updates=6", "run.groups_per_update=4", "eval=none")
SHORT = (*RUN, "eval.snapshots=0", "algo=rloo")


def test_a_mixture_logs_the_reward_of_each_task(finished: Finished) -> None:
    for row in finished(*SHORT)[0]:
        # one of four prompts is a product
        shares = 0.75 * row["reward/task/sums"] + 0.25 * row["reward/task/products"]
        assert row["reward/mean"] == pytest.approx(shares, abs=1e-6)


def test_a_mixture_that_was_stopped_goes_on(make_config: MakeConfig) -> None:
    config = make_config(*SHORT, "mode=async", "mode.executor=thread", "checkpoint=rounds")
    output = memory_of(config)
    with pytest.raises(StopRequested):
        run_in_memory(config, output, lambda: len(output.rows) > 2)
    assert run_in_memory(config, output) == run_in_memory(config)


POST = {"post": "first line\nsecond line", "title": "t", "subreddit": "s"}
PER_TASK = (
    *("reward=per_task", "+reward@reward.terms.sums=task_rule"),
    *(
        "+reward@reward.terms.products=function",
        "reward.terms.products.path=tests.support.lively.always",
    ),
)


def test_each_task_has_its_reward_and_is_judged_by_itself(
    make_config: MakeConfig, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    options = (*RUN[:-1], *PER_TASK, "algo=rloo", "eval.prompts=64", f"output.dir={folder}")
    lifecycle.train(make_config(*options), Console(quiet=True), FACTS)
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert {row["reward/task/products"] for row in rows} == {0.25}
    assert all(row["reward/task/sums"] in {n / 6 for n in range(7)} for row in rows)
    (row, *_) = [json.loads(line) for line in (folder / "evals.jsonl").read_text().splitlines()]
    # the judge is the rule of both tasks: 48 prompts are sums, 16 products
    both = 0.75 * row["task/sums/accuracy"] + 0.25 * row["task/products/accuracy"]
    assert row["accuracy/mean"] == pytest.approx(both)
    assert row["task/sums/accuracy_low"] <= row["task/sums/accuracy"] == row["task/sums/gold_mean"]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (PER_TASK[:2], r"terms for \['sums'\] and task=mixture with the tasks \['products', 'su"),
        ((*PER_TASK, "task=arithmetic"), "task=arithmetic with no mixture"),
        (("reward=per_task",), r"reward\.terms has no reward"),
    ],
)
def test_rewards_that_are_not_those_of_the_tasks_are_refused(
    make_config: MakeConfig, options: tuple[str, ...], why: str
) -> None:
    with pytest.raises(UserError, match=why):
        check(make_config("task=mixture", *options))


def test_what_a_task_can_do_the_mixture_does_for_its_rows() -> None:
    tldr = Mixture(tasks={"posts": Tldr(), "sums": TASKS["sums"]}, weights={"posts": 1, "sums": 1})
    post = Example("1", "SUBREDDIT: r/a", "", {MIXED_TASK: "posts", **POST})
    shorter, own = tldr.shorter(post, 4), Tldr().shorter(post, 4)
    assert shorter is not None and own is not None
    assert shorter.prompt == own.prompt and shorter.hidden[MIXED_TASK] == "posts"
    assert tldr.shorter(Example("2", "1+2=", "3", {MIXED_TASK: "sums"}), 4) is None
    assert not tldr.has_rule and MIXTURE.has_rule
    assert MIXTURE.content() == {}

"""What tasks with an environment cannot be combined with, and environments that do not work."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from rlhf_lab.experiment import derived
from rlhf_lab.experiment.checks import check, require_working_parts
from rlhf_lab.experiment.checks_episodes import check_episodes, require_working_environment
from rlhf_lab.experiment.checks_models import check_context, check_lengths
from rlhf_lab.tasks.environment import Episodic, Turn
from rlhf_lab.tasks.tool_arithmetic import ToolArithmetic
from rlhf_lab.types import limits
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import Example
from tests.conftest import MakeConfig
from tests.support.environments import Script

TASKS = ("tool_arithmetic", "ask_nano")
MODES = (
    ["mode=sync"],
    ["mode=lagged"],
    ["mode=async"],
    ["mode=async", "mode.executor=thread"],
    ["mode=free"],
    ["run.buffer_rounds=2", "run.fresh_share=0.5"],
)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("mode", MODES, ids=" ".join)
def test_episodes_are_generated_in_these_modes(
    config_of: MakeConfig, task: str, mode: list[str]
) -> None:
    config = config_of(f"task={task}", *mode)
    assert isinstance(config.task, Episodic)
    assert config.reward.name == "environment"
    check(config)


@pytest.mark.parametrize(
    ("overrides", "complaint"),
    [
        (["generator=vllm"], "generator=vllm: it writes one turn; pass generator=hf"),
        (["generator=vllm_server"], "generator=vllm_server: it writes one turn; pass generator=hf"),
        (
            ["generator=pairs", "generator.path=somewhere"],
            "generator=pairs: it writes one turn; pass generator=hf",
        ),
        (
            ["mode=partial", "mode.segment_tokens=7"],
            "mode.segment_tokens=7: a segment may end within a turn; pass mode=sync, lagged or "
            "async, or mode.segment_tokens=0",
        ),
        (
            ["mode=free", "mode.weights=latest_per_token"],
            "mode.weights=latest_per_token: weights come between turns of some samples and within "
            "those of others; pass mode=sync, lagged, async or free",
        ),
        (["mode=virtual"], "mode.weights=cluster: weights come between turns of some samples"),
        (["run.offline_share=0.25"], "run.offline_share=0.25: fixed answers have one turn; pass "),
        (
            ["sft.loss_on=all"],
            "sft.loss_on=all: what the environment wrote is not learned; pass sft.loss_on=response",
        ),
        (["engine=fsdp"], "engine=fsdp: evaluation plays episodes in one process; pass engine=sin"),
        (["engine=deepspeed"], "engine=deepspeed: evaluation plays episodes in one process; pass "),
        (
            ["reward=reward_model"],
            "reward=reward_model: a reward model reads one answer; pass reward=environment",
        ),
        (["reward=ensemble"], "reward=ensemble: a reward model reads one answer; pass reward=env"),
        (["reward=steps", "reward.path=x"], "reward=steps: a reward model reads one answer; pass "),
        (
            [
                "reward=combined",
                "+reward@reward.terms.own=environment",
                "+reward@reward.terms.learned=reward_model",
            ],
            "reward.terms.learned=reward_model: a reward model reads one answer; pass",
        ),
    ],
)
def test_parts_that_know_one_turn_are_refused(
    config_of: MakeConfig, overrides: list[str], complaint: str
) -> None:
    config = config_of("task=tool_arithmetic", *overrides)
    with pytest.raises(UserError) as refused:
        check_episodes(config)
    expected = f"task=tool_arithmetic has several turns, with {complaint}"
    assert str(refused.value).startswith(expected)
    # The same parts are no concern of a task of one turn.
    check_episodes(replace(config, task=config_of("task=arithmetic").task))


@pytest.mark.parametrize("overrides", [["mode=partial"], ["sft.loss_on=all"]])
def test_a_run_is_refused_before_it_starts(config_of: MakeConfig, overrides: list[str]) -> None:
    with pytest.raises(UserError, match="^task=ask_nano has several turns, with "):
        check(config_of("task=ask_nano", *overrides))


@pytest.mark.parametrize(
    ("overrides", "place"),
    [
        (["reward=environment"], "reward"),
        (["reward@judge=environment"], "judge"),
        (
            ["reward=combined", "+reward@reward.terms.a=environment"],
            "reward.terms.a",
        ),
    ],
)
def test_the_environments_reward_needs_a_task_with_an_environment(
    config_of: MakeConfig, overrides: list[str], place: str
) -> None:
    config = config_of("task=tldr_nano", *overrides)
    complaint = rf"^{place}=environment with task=tldr_nano: the task has no environment; pass ano"
    for one in (check_episodes, check):
        with pytest.raises(UserError, match=complaint):
            one(config)


def test_a_mixture_holds_no_episodes(config_of: MakeConfig) -> None:
    complaint = (
        r"task\.tasks\.tool=tool_arithmetic: a mixture has no episodes of several turns; pass "
        r"task=tool_arithmetic by itself"
    )
    parts = ["+task@task.tasks.sums=arithmetic", "+task@task.tasks.tool=tool_arithmetic"]
    with pytest.raises(UserError, match=complaint):
        check(config_of("task=mixture", *mixed(), *parts))


def mixed() -> list[str]:
    return ["reward=task_rule"]


def test_the_context_must_hold_prompt_turns_and_observations(config_of: MakeConfig) -> None:
    short = ["task.max_prompt_tokens=12", "task.max_observation_tokens=12", "task.max_turns=4"]
    own = ["task=tool_arithmetic", *short, "task.max_response_tokens=40"]
    config = config_of(*own, "model.max_positions=100")
    assert derived.observation_tokens(config) == 4 * 12
    assert derived.observation_tokens(config_of("task=arithmetic")) == 0
    check_lengths(config)
    with pytest.raises(UserError) as refused:
        check_lengths(config_of(*own, "model.max_positions=99"))
    assert "max_prompt_tokens=12 plus responses of 88 tokens do not fit model" in str(refused.value)
    assert "raise model.max_positions or lower the lengths" in str(refused.value)


@dataclass
class Loaded:
    """A model of which nothing but its context is known."""

    max_position_embeddings: int

    @property
    def config(self) -> Loaded:
        return self


def test_the_context_of_a_loaded_model_must_hold_them_too(config_of: MakeConfig) -> None:
    config = config_of("task=tool_arithmetic", "task.max_prompt_tokens=12")
    most = 12 + config.task.max_response_tokens + derived.observation_tokens(config)
    check_context(config, Loaded(most))
    with pytest.raises(UserError, match=rf"responses of {most - 12} tokens do not fit .*{most - 1}"):
        check_context(config, Loaded(most - 1))


@dataclass(frozen=True)
class Worldly(ToolArithmetic):
    """The task with another environment."""

    turns: tuple[Any, ...] = ()
    first: Any = ""
    name: str = limits.name("tool_arithmetic")

    def environment(self) -> Any:
        return self.turns[0] if callable(self.turns[0]) else Script(self.turns, self.first)


class Raising:
    def __call__(self) -> None: ...

    def reset(self, example: Example, seed: int) -> str:
        raise KeyError("no such fact")


class Counting(Raising):
    """Another answer each time."""

    number = 0

    def reset(self, example: Example, seed: int) -> str:
        return ""

    def step(self, action: str, finished: bool) -> Turn:
        Counting.number += 1
        return Turn(reward=Counting.number)


@pytest.mark.parametrize(
    ("turns", "first", "error", "complaint"),
    [
        ((Raising(),), "", KeyError, "no such fact"),
        ((Counting(),), "", UserError, "turn 1: played again .* gave something else"),
        (("33;",), "", UserError, "turn 1: step returned str: return rlhf_lab"),
        ((Turn(reward=float("nan")),), "", UserError, "turn 1: reward is nan: pass a finite numb"),
        ((Turn(),), None, UserError, "turn 1: reset returned NoneType: return the text"),
    ],
)
def test_an_environment_that_does_not_work_is_refused_before_the_first_step(
    config_of: MakeConfig, turns: tuple[Any, ...], first: Any, error: type, complaint: str
) -> None:
    config = config_of("task=tool_arithmetic")
    broken = replace(config, task=Worldly(turns=turns, first=first))
    for require in (require_working_environment, require_working_parts):
        with pytest.raises(error, match=complaint) as refused:
            require(broken)
        told = " ".join([str(refused.value), *getattr(refused.value, "__notes__", [])])
        assert "task=tool_arithmetic, row tool_arithmetic/train/0, turn 1" in told


def test_environments_that_work_are_begun_and_take_an_unfinished_action(
    config_of: MakeConfig,
) -> None:
    for task in TASKS:
        require_working_parts(config_of(f"task={task}"))
    world = Script([Turn("never read")])
    config = config_of("task=tool_arithmetic")

    class Own(Worldly):
        def environment(self) -> Script:
            return world

    require_working_environment(replace(config, task=Own()))
    assert world.seen == [("", False)] * 2
    require_working_environment(config_of("task=arithmetic"))

"""What tasks with an environment cannot be combined with, and the context that they need."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from rlhf_lab.experiment.rules import derived
from rlhf_lab.experiment.rules.checks import check
from rlhf_lab.experiment.rules.models import check_context, check_lengths
from rlhf_lab.experiment.rules.tasks import check_episodes
from rlhf_lab.tasks.tool_arithmetic import ToolArithmetic
from rlhf_lab.types.errors import UserError
from tests.conftest import MakeConfig
from tests.support.environments import Play, Script

TASKS = ("tool_arithmetic", "ask_nano", "twenty_questions")
MODES = (
    ["mode=sync"],
    ["mode=lagged"],
    ["mode=async"],
    ["mode=async", "mode.executor=thread"],
    ["mode=free"],
    ["mode=free", "mode.weights=latest_per_token"],
    ["mode=partial_turns"],
    ["mode=partial_turns", "mode.segment_turns=3"],
    ["mode=partial"],
    ["mode=partial", "mode.segment_tokens=7", "mode.over_provision=1.5"],
    ["run.buffer_rounds=2", "run.fresh_share=0.5"],
)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("mode", MODES, ids=" ".join)
def test_episodes_are_generated_in_these_modes(
    config_of: MakeConfig, task: str, mode: list[str]
) -> None:
    config = config_of(f"task={task}", *mode)
    assert config.task.is_episodic
    assert config.reward.name == "environment"
    check(config)


@pytest.mark.parametrize(
    ("overrides", "complaint"),
    [
        (
            ["generator=pairs", "generator.path=somewhere"],
            "generator=pairs: fixed pairs have one turn; pass generator=hf",
        ),
        (["run.offline_share=0.25"], "run.offline_share=0.25: fixed answers have one turn; pass "),
        (
            ["sft.loss_on=all"],
            "sft.loss_on=all: what the environment wrote is not learned; pass sft.loss_on=response",
        ),
        (
            ["reward=reward_model"],
            "reward=reward_model: its reward model would learn from answers of one turn; pass the "
            "path of one that exists, or reward=environment",
        ),
        (["reward=ensemble"], "reward=ensemble: its reward model would learn from answers of one "),
        (["reward=steps", "reward.path=x"], "reward=steps: it scores the steps of one answer; "),
        (
            [
                "reward=combined",
                "+reward@reward.terms.own=environment",
                "+reward@reward.terms.learned=reward_model",
            ],
            "reward.terms.learned=reward_model: its reward model would learn from answers of one ",
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
    # A task of one turn may have these parts.
    plain = config_of("task=arithmetic", "reward=task_rule")
    check_episodes(replace(config, task=plain.task, reward=plain.reward))


@pytest.mark.parametrize(
    "overrides",
    [["reward=reward_model", "reward.path=x"], ["reward=ensemble", "reward.paths=[x,y]"]],
)
def test_reward_models_that_exist_may_score_episodes(
    config_of: MakeConfig, overrides: list[str]
) -> None:
    check_episodes(config_of("task=tool_arithmetic", *overrides))


@pytest.mark.parametrize(
    "overrides", [["generator=pairs", "generator.path=x"], ["sft.loss_on=all"]]
)
def test_a_run_is_refused_before_it_starts(config_of: MakeConfig, overrides: list[str]) -> None:
    with pytest.raises(UserError, match=r"^task=ask_nano has several turns, with "):
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


def test_segments_of_turns_need_turns(config_of: MakeConfig) -> None:
    config = config_of("task=arithmetic", "reward=task_rule", "mode=partial_turns")
    complaint = (
        r"^mode\.segment_turns=1 with task=arithmetic: its samples have one turn; pass "
        r"mode\.segment_tokens, or task=ask_nano"
    )
    with pytest.raises(UserError, match=complaint):
        check(config)


def test_a_mixture_holds_no_episodes(config_of: MakeConfig) -> None:
    complaint = (
        r"task\.tasks\.tool=tool_arithmetic: a mixture has no episodes of several turns; pass "
        r"task=tool_arithmetic by itself"
    )
    with pytest.raises(UserError, match=complaint):
        config_of(
            "task=mixture", "+task/schema@task.tasks.tool=tool_arithmetic", "+task.weights.tool=1"
        )


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

    def get_text_config(self) -> Loaded:
        return self


def test_rows_do_not_cross_the_border_of_longrope(config_of: MakeConfig) -> None:
    config = config_of("task=arithmetic", "task.max_prompt_tokens=12")
    most = 12 + config.task.max_response_tokens
    loaded = Loaded(1000)
    for border in (most, most - 1):
        rope = {"rope_type": "longrope", "original_max_position_embeddings": border}
        object.__setattr__(loaded, "rope_parameters", rope)
        if border == most:
            check_context(config, loaded)
        else:
            with pytest.raises(UserError, match=r"task\.max_prompt_tokens=12"):
                check_context(config, loaded)


def test_the_context_of_a_loaded_model_must_hold_them_too(config_of: MakeConfig) -> None:
    config = config_of("task=tool_arithmetic", "task.max_prompt_tokens=12")
    most = 12 + config.task.max_response_tokens + derived.observation_tokens(config)
    check_context(config, Loaded(most))
    with pytest.raises(
        UserError, match=rf"responses of {most - 12} tokens do not fit .*{most - 1}"
    ):
        check_context(config, Loaded(most - 1))


def test_environments_that_share_state_are_called_one_at_a_time(
    config_of: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = config_of("task=tool_arithmetic", "episodes.steps_at_once=2")
    cut = config_of("task=tool_arithmetic", "episodes.when_late=truncate")
    check(many)
    check(cut)
    monkeypatch.setattr(ToolArithmetic, "shares_random", True)
    with pytest.raises(UserError, match=r"episodes\.steps_at_once=2: its environments share"):
        check(many)
    with pytest.raises(UserError, match=r"episodes\.when_late=truncate: a step that is late keeps"):
        check(cut)
    check(config_of("task=tool_arithmetic"))


def test_an_environment_without_limits_of_its_turns_is_refused() -> None:
    with pytest.raises(UserError, match="task=play has an environment: give it the fields max_tur"):
        Play(lambda: Script([]), max_turns=0)

"""Rules of tasks with an environment, whose prompts begin episodes of several turns."""

from __future__ import annotations

from rlhf_lab.experiment.config import Config
from rlhf_lab.rewards.options import named_parts
from rlhf_lab.rollout.cluster.options import WeightUpdate
from rlhf_lab.rollout.generators.environment_calls import EnvironmentCalls
from rlhf_lab.rollout.generators.episode_options import WhenLate
from rlhf_lab.rollout.generators.open_episode import Limits, OpenEpisode, Said
from rlhf_lab.rollout.generators.options import Ability
from rlhf_lab.tasks.chat_turns import refuse_first
from rlhf_lab.training.stages.options import LossOn
from rlhf_lab.types.errors import UserError, refuse_first_of
from rlhf_lab.types.samples import Prompt, Split


def check_episodes(config: Config) -> None:
    """Episodes must be generated, scored and learned from by parts that know them."""
    if not config.task.is_episodic:
        refuse_without_environment(config)
        refuse_turns(config)
        refuse_tools(config)
        refuse_waits(config)
        return
    generator, run = config.generator, config.run
    shares_random = config.task.shares_random
    refusals = (
        (
            not generator.draws_samples,
            f"generator={generator.name}: fixed pairs have one turn; pass generator=hf",
        ),
        *virtual_turns(config),
        (
            config.episodes.steps_at_once > 1 and shares_random,
            f"episodes.steps_at_once={config.episodes.steps_at_once}: its environments share "
            "random numbers; pass episodes.steps_at_once=1",
        ),
        (
            config.episodes.when_late is WhenLate.truncate and shares_random,
            "episodes.when_late=truncate: a step that is late keeps the random numbers that all "
            "its environments share, and the others wait for it; pass episodes.when_late=stop",
        ),
        (
            bool(run.offline_share),
            f"run.offline_share={run.offline_share}: fixed answers have one turn; pass "
            "run.offline_share=0",
        ),
        (
            config.sft.loss_on is LossOn.all,
            "sft.loss_on=all: what the environment wrote is not learned; pass sft.loss_on=response",
        ),
        *learned_rewards(config),
    )
    refuse_first_of(refusals, f"task={config.task.name} has several turns, with")
    generator.require(Ability.turns, f"task={config.task.name}")


def refuse_turns(config: Config) -> None:
    """Segments of turns need turns."""
    if config.mode.segment_turns:
        raise UserError(
            f"mode.segment_turns={config.mode.segment_turns} with task={config.task.name}: its "
            "samples have one turn; pass mode.segment_tokens, or task=ask_nano"
        )


def virtual_turns(config: Config) -> list[tuple[bool, str]]:
    """New weights come to a virtual generator at a decoding step, which must be a token of all
    episodes of its chunk, and may be within a turn."""
    update, is_virtual = config.cluster.weight_update, config.mode.is_virtual
    return [
        (
            is_virtual and update is WeightUpdate.interrupt,
            "cluster.weight_update=interrupt: a turn that has begun is not continued by other "
            "weights with its text read anew; pass cluster.weight_update=drain, or in_flight",
        ),
        (
            is_virtual and update is WeightUpdate.in_flight and bool(config.episodes.tool_seconds),
            f"cluster.weight_update=in_flight and episodes.tool_seconds="
            f"{config.episodes.tool_seconds:g}: episodes that wait for tools are at different "
            "tokens when new weights come; pass cluster.weight_update=drain",
        ),
        (
            is_virtual and update is WeightUpdate.in_flight and bool(config.episodes.decode_ahead),
            f"cluster.weight_update=in_flight and episodes.decode_ahead="
            f"{config.episodes.decode_ahead}: steps in which episodes wait are no tokens, by which "
            "new weights come; pass cluster.weight_update=drain, or episodes.decode_ahead=0",
        ),
    ]


def refuse_tools(config: Config) -> None:
    """Tools need turns."""
    if config.episodes.tool_seconds:
        raise UserError(
            f"episodes.tool_seconds={config.episodes.tool_seconds:g} with task="
            f"{config.task.name}: it has no environment; pass episodes.tool_seconds=0, or "
            "task=ask_nano"
        )


def refuse_waits(config: Config) -> None:
    """Where no environment is called, nothing waits."""
    if config.episodes.decode_ahead:
        raise UserError(
            f"episodes.decode_ahead={config.episodes.decode_ahead} with task={config.task.name}: "
            "it has no environment; pass episodes.decode_ahead=0, or task=ask_nano"
        )


def learned_rewards(config: Config) -> list[tuple[bool, str]]:
    """Pairs for a reward model are answers of one turn, and steps of an episode are its turns."""
    refusals = []
    for place, part in named_parts("reward", config.reward):
        named = f"{place}={part.name}"
        refusals += [
            (
                bool(part.num_proxies),
                f"{named}: its reward model would learn from answers of one turn; pass the path "
                "of one that exists, or reward=environment",
            ),
            (
                bool(part.step_model_paths()),
                f"{named}: it scores the steps of one answer; pass reward=environment, which has a "
                "reward for each turn",
            ),
        ]
    return refusals


def refuse_without_environment(config: Config) -> None:
    """The environment's reward needs an environment."""
    for key in ("reward", "judge"):
        for place, part in named_parts(key, getattr(config, key)):
            if part.needs_episodes:
                raise UserError(
                    f"{place}=environment with task={config.task.name}: the task has no "
                    "environment; pass another reward, or task=ask_nano"
                )


def require_one_turn(config: Config, what: str) -> None:
    """Raise UserError where what is to be made consists of answers of one turn."""
    if config.task.is_episodic:
        raise UserError(
            f"task={config.task.name} has several turns, and {what} compare answers of one: pass "
            "reward=environment, or another task"
        )


def require_working_environment(config: Config) -> None:
    """Begin an episode and take one action, so that an environment that cannot is refused before
    the first step."""
    task = config.task
    if not task.is_episodic:
        return
    example = task.examples(Split.train)[0]
    limits = Limits(task.max_turns, 1, 1, task.max_observation_tokens)
    episode = OpenEpisode(Prompt(0, (), example), 0, task.environment(), 0, limits, task.name)
    calls, cut = EnvironmentCalls(config.episodes), Said("", False)
    episode.first = calls.one(episode.reset())
    refuse_first(task.name, example, episode.first)
    episode.act(cut, calls.one(episode.step(cut)), (), (), ())
    episode.require_repeatable(task.environment(), calls)

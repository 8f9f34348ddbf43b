"""Rules of tasks with an environment, whose prompts begin episodes of several turns."""

from __future__ import annotations

from rlhf_lab.experiment.config import Config
from rlhf_lab.rewards.environment import EnvironmentReward
from rlhf_lab.rewards.options import named_parts
from rlhf_lab.rollout.generators.open_episode import Limits, OpenEpisode
from rlhf_lab.tasks.chat_turns import refuse_first
from rlhf_lab.tasks.environment import Episodic
from rlhf_lab.training.stages.sft_options import LossOn
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import Prompt, Split


def check_episodes(config: Config) -> None:
    """Episodes must be generated, scored and learned from by parts that know them."""
    if not isinstance(config.task, Episodic):
        refuse_without_environment(config)
        refuse_turns(config)
        return
    mode, generator, run = config.mode, config.generator, config.run
    refusals = (
        (
            not generator.draws_samples or generator.has_own_kernels,
            f"generator={generator.name}: it writes one turn; pass generator=hf",
        ),
        (
            bool(mode.segment_tokens),
            f"mode.segment_tokens={mode.segment_tokens}: a segment may end within a turn; pass "
            "mode.segment_tokens=0 mode.segment_turns=1",
        ),
        (
            mode.is_virtual,
            "mode=virtual: the cluster's generators write one turn; pass mode=sync, lagged, async "
            "or free",
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
        (
            config.engine.shares_work,
            f"engine={config.engine.name}: evaluation plays episodes in one process; pass "
            "engine=single",
        ),
        *learned_rewards(config),
    )
    for is_refused, why in refusals:
        if is_refused:
            raise UserError(f"task={config.task.name} has several turns, with {why}")


def refuse_turns(config: Config) -> None:
    """Segments of turns need turns."""
    if config.mode.segment_turns:
        raise UserError(
            f"mode.segment_turns={config.mode.segment_turns} with task={config.task.name}: its "
            "samples have one turn; pass mode.segment_tokens, or task=ask_nano"
        )


def learned_rewards(config: Config) -> list[tuple[bool, str]]:
    """Reward models read a prompt and one answer."""
    return [
        (
            part.is_learned or bool(part.step_model_paths()),
            f"{place}={part.name}: a reward model reads one answer; pass reward=environment",
        )
        for place, part in named_parts("reward", config.reward)
    ]


def refuse_without_environment(config: Config) -> None:
    """The environment's reward needs an environment."""
    for key in ("reward", "judge"):
        for place, part in named_parts(key, getattr(config, key)):
            if isinstance(part, EnvironmentReward):
                raise UserError(
                    f"{place}=environment with task={config.task.name}: the task has no "
                    "environment; pass another reward, or task=ask_nano"
                )


def require_one_turn(config: Config, what: str) -> None:
    """Raise UserError where what is to be made consists of answers of one turn."""
    if isinstance(config.task, Episodic):
        raise UserError(
            f"task={config.task.name} has several turns, and {what} compare answers of one: pass "
            "reward=environment, or another task"
        )


def require_working_environment(config: Config) -> None:
    """Begin an episode and take one action, so that an environment that cannot is refused before
    the first step."""
    task = config.task
    if not isinstance(task, Episodic):
        return
    example = task.examples(Split.train)[0]
    limits = Limits(task.max_turns, 1, 1, task.max_observation_tokens)
    episode = OpenEpisode(Prompt(0, (), example), 0, task.environment(), 0, limits, task.name)
    refuse_first(task.name, example, episode.begin())
    episode.act("", False, (), (), ())
    episode.require_repeatable(task.environment())

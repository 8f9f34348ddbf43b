"""Rules of prompts, rewards and episodes."""

from __future__ import annotations

from collections.abc import Iterator

from rlhf_lab.experiment.config.config import Config
from rlhf_lab.experiment.rules.derived import response_tokens
from rlhf_lab.rewards.options import RewardOptions, named_parts, num_proxies, parts
from rlhf_lab.rollout.cluster.options import WeightUpdate
from rlhf_lab.rollout.generators.environment_calls import EnvironmentCalls
from rlhf_lab.rollout.generators.episode_options import WhenLate
from rlhf_lab.rollout.generators.open_episode import ActionText, Limits, OpenEpisode
from rlhf_lab.rollout.generators.options import Ability
from rlhf_lab.rollout.mode import WhenStale
from rlhf_lab.tasks.chat_turns import refuse_first
from rlhf_lab.training.stages.options import LossOn
from rlhf_lab.types.errors import UserError, refuse_first_of
from rlhf_lab.types.prompt_options import PromptChoice
from rlhf_lab.types.samples import Prompt, Split


def check_prompts(config: Config) -> None:
    """A selection by pass rates must have pass rates, in time to change something."""
    run, mode = config.run, config.mode
    if not run.remembers_prompts:
        return
    learned = [part.name for part in parts(config.reward) if part.is_learned]
    is_pool = run.prompts is PromptChoice.pool
    refusals = (
        (
            not config.generator.draws_samples,
            "generator=pairs: fixed answers have no pass rate; pass generator=hf",
        ),
        (
            bool(run.offline_share),
            f"run.offline_share={run.offline_share}: fixed answers have no pass rate; pass "
            "run.offline_share=0",
        ),
        (
            bool(learned),
            f"reward={learned[:1]}: scores of a reward model are no pass rates; pass "
            "reward=task_rule, or another reward from 0 to 1",
        ),
        (
            mode.when_stale is WhenStale.drop,
            "mode.when_stale=drop: rounds are generated before it is certain which results precede "
            "them; pass mode.when_stale=wait",
        ),
        (
            mode.recycles_groups,
            f"mode.over_provision={mode.over_provision:g}: a round then trains on groups that were "
            "drawn for another; pass mode.over_provision=1",
        ),
        (
            is_pool and run.rest_rounds <= mode.max_staleness,
            f"run.rest_rounds={run.rest_rounds} and mode.max_staleness={mode.max_staleness}: a "
            "result counts after that many rounds, when no prompt would be left out any more; pass "
            f"run.rest_rounds={mode.max_staleness + 1} or more",
        ),
        (
            not is_pool and not run.groups_repeated,
            f"run.repeat_share={run.repeat_share:g}: that is less than one of the "
            f"{run.groups_generated} groups of a round; raise it, or run.groups_per_update",
        ),
    )
    refuse_first_of(refusals, f"run.prompts={run.prompts.value} with")


def check_rules(config: Config) -> None:
    """The task must have the rule that scores it; a judge has no proxy."""
    for key in ("reward", "judge"):
        check_terms_of_tasks(config, key)
        is_rule = any(part.is_rule for part in without_tasks(getattr(config, key)))
        if is_rule and not config.task.has_rule:
            option = "reward" if key == "reward" else "reward@judge"
            scorer = f"reward_model {key}.path=<hub name or folder of a reward model>"
            if config.task.is_episodic:
                scorer = "environment"
            raise UserError(
                f"{key}=task_rule with task={config.task.name}: this task has no rule of its own; "
                f"pass {option}={scorer}"
            )
    if num_proxies(config.judge):
        raise UserError(
            "judge.path='' : a judging reward model must be named, since the proxy would judge "
            "itself; pass judge.path=<hub name or folder>"
        )


def without_tasks(options: RewardOptions) -> Iterator[RewardOptions]:
    """A reward's options and those of its terms, but of none of a task of a mixture."""
    return iter(()) if options.by_task else parts(options)


def check_terms_of_tasks(config: Config, key: str) -> None:
    """Every task of a mixture must have its reward, and the rule that this scores it by."""
    for place, options in named_parts(key, getattr(config, key)):
        if not options.by_task:
            continue
        tasks = config.task.tasks
        if set(tasks) != set(options.terms):
            known = f"the tasks {sorted(tasks)}" if tasks else "no mixture"
            raise UserError(
                f"{place}=per_task with terms for {sorted(options.terms)} and task="
                f"{config.task.name} with {known}: give every task of task=mixture one reward, "
                f"with +reward@{place}.terms.TASK=OPTION"
            )
        for name, term in options.terms.items():
            if any(part.is_rule for part in parts(term)) and not tasks[name].has_rule:
                raise UserError(
                    f"{place}.terms.{name}=task_rule with task.tasks.{name}={tasks[name].name}: "
                    "this task has no rule of its own; pass a reward model"
                )


def unknown_violations(config: Config) -> str:
    """A warning where an algorithm needs rewards that show violated constraints, and a reward model
    alone gives them; else ''."""
    is_plain = config.reward.is_learned
    if not config.algo.needs.constraints or not is_plain:
        return ""
    return (
        f"algo={config.algo.name} with reward={config.reward.name}: a reward of 0 or less means "
        "that a constraint is violated, and others are between 0 and 1; scores of a reward model "
        "are neither. reward=cgpo gives both"
    )


def check_shaping(config: Config) -> None:
    """Shaping must have a reward to shape, and punish a length once."""
    shaping = config.shaping
    if shaping.is_on and not config.generator.draws_samples:
        raise UserError(
            f"shaping.{shaping.first} with generator=pairs: the reward of fixed pairs is the "
            "preference itself; leave shaping out, or pass generator=hf"
        )
    limit = response_tokens(config)
    if shaping.overlong_buffer > limit:
        raise UserError(
            f"shaping.overlong_buffer={shaping.overlong_buffer} is more than the response limit of "
            f"{limit} tokens: lower it, or raise generator.max_new_tokens"
        )
    if shaping.overlong_buffer and config.algo.needs.length_penalty:
        raise UserError(
            f"shaping.overlong_buffer={shaping.overlong_buffer} with algo={config.algo.name}: it "
            "punishes long answers by itself; pass algo.overlong_penalty=0 or leave the buffer out"
        )


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
    calls, cut = EnvironmentCalls(config.episodes), ActionText("", False)
    episode.first = calls.one(episode.reset())
    refuse_first(task.name, example, episode.first)
    episode.act(cut, calls.one(episode.step(cut)), (), (), ())
    episode.require_repeatable(task.environment(), calls)

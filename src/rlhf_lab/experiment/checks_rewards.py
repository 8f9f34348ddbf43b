"""Rules between rewards, the judge, shaping, and the task whose samples they score."""

from __future__ import annotations

from collections.abc import Iterator

from rlhf_lab.experiment.config import Config
from rlhf_lab.experiment.derived import response_tokens
from rlhf_lab.rewards.options import RewardOptions, named_parts, num_proxies, parts
from rlhf_lab.types.errors import UserError


def check_rules(config: Config) -> None:
    """The task must have the rule that scores it; a judge has no proxy of its own."""
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

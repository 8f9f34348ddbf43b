"""Combinations that cannot work, refused before anything is loaded or computed.

A part refuses by itself what its own values exclude (when it is made) and what it needs of the
environment (`require_usable`). Here and in the modules beside are the rules between parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from rlhf_lab.experiment.config.config import Config, plain
from rlhf_lab.experiment.rules.algorithm import (
    check_correction,
    check_gradient_cosine,
    check_group_size,
    check_ratio_gradients,
    check_return_scaling,
    check_rounds,
    check_samples,
    check_teacher,
    check_truncated,
    check_value_rounds,
    check_writers,
    starts_at_zero,
)
from rlhf_lab.experiment.rules.derived import pair_columns, pairs_file, trains_proxy
from rlhf_lab.experiment.rules.devices import (
    check_cluster,
    check_devices,
    check_kernels,
    check_own_kernels,
    check_threads,
    check_workspace,
    full_precision,
)
from rlhf_lab.experiment.rules.models import (
    check_adapters,
    check_judge,
    check_lengths,
    check_offline,
    check_pairs,
    check_precision,
    check_proxy,
    check_references,
    check_sft,
    require_judge,
    require_readable,
    unknown_writers,
)
from rlhf_lab.experiment.rules.tasks import (
    check_episodes,
    check_prompts,
    check_rules,
    check_shaping,
    require_working_environment,
    unknown_violations,
)
from rlhf_lab.models.options import ScratchModel
from rlhf_lab.rewards.options import NoJudge, named_parts, parts
from rlhf_lab.runs.jsonl import leaves
from rlhf_lab.runs.secrets import secret_in
from rlhf_lab.tasks.chat import check_end
from rlhf_lab.tasks.examples import as_examples
from rlhf_lab.tasks.pair_sources import pair_examples
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import Split

# Only a run needs a reward.
OF_RUNS = (check_judge,)


def check(config: Config, here: bool = True) -> Config:
    """Refuse combinations that cannot work, before anything is loaded or computed. Returns the
    config.

    here: whether this machine will run it; packages, devices and servers are looked for only then.
    """
    for rule in RULES:
        if here or rule not in OF_THIS_MACHINE:
            rule(config)
    return config


def check_stage(config: Config, judges: bool) -> Config:
    """The rules for a stage that is trained or labelled alone, whose samples no reward scores.
    judges: whether the judge orders pairs for it. Returns the config without reward, and without a
    judge that is not used."""
    used = replace(config, reward=NoJudge(), judge=config.judge if judges else NoJudge())
    for rule in RULES:
        if rule not in OF_RUNS:
            rule(used)
    if judges:
        require_judge(used)
    return used


def check_secrets(config: Config) -> None:
    """A run writes its config down, so no key may be in it; the value is not repeated here."""
    texts = [(name, value) for name, value in leaves(plain(config)) if isinstance(value, str)]
    # Hardly a config has one, so all texts are searched together first.
    if not secret_in("\n".join(value for _, value in texts)):
        return
    for name, value in texts:
        if found := secret_in(value):
            raise UserError(
                f"{name} holds {found}, which the run would write down: keep it in the environment "
                "(HF_TOKEN, WANDB_API_KEY, a variable that key_variable names) and take it out"
            )


def check_parts(config: Config) -> None:
    """Every part must find what it needs of the environment: packages, servers, keys, functions."""
    if any(part.runs_own_code for node in (config.reward, config.judge) for part in parts(node)):
        # A module of the user's may change torch's state while it is imported. That is noticed,
        # and restored, only if torch was loaded before.
        import torch  # noqa: F401

    for key, part in mounted_parts(config):
        part.require_usable(key)


def mounted_parts(config: Config) -> Iterator[tuple[str, Any]]:
    """The config's parts and the terms of its rewards, each with its key."""
    for key in ("task", "model", "proxy", "engine", "generator", "tracker"):
        yield key, getattr(config, key)
    for key in ("reward", "judge"):
        yield from named_parts(key, getattr(config, key))


# What the config alone decides comes first: devices are asked of torch, which takes seconds.
RULES: tuple[Callable[[Config], None], ...] = (
    check_secrets,
    check_group_size,
    check_truncated,
    check_return_scaling,
    check_value_rounds,
    check_gradient_cosine,
    check_ratio_gradients,
    check_adapters,
    check_teacher,
    check_correction,
    check_writers,
    check_rounds,
    check_threads,
    check_judge,
    check_references,
    check_sft,
    check_episodes,
    check_lengths,
    check_rules,
    check_proxy,
    check_shaping,
    check_pairs,
    check_offline,
    check_prompts,
    check_cluster,
    check_samples,
    check_own_kernels,
    check_kernels,
    check_devices,
    check_workspace,
    check_parts,
    check_precision,
)
OF_THIS_MACHINE = (check_kernels, check_devices, check_workspace, check_parts)


def warnings(config: Config) -> list[str]:
    """Valid settings that are probably mistakes."""
    found = (
        config.correction.warning,
        starts_at_zero(config),
        unknown_writers(config),
        unknown_violations(config),
        config.task.warning,
        full_precision(config),
    )
    return [warning for warning in found if warning]


def check_data(config: Config) -> None:
    """The rules for a command that reads the task's rows and trains nothing."""
    check_secrets(config)
    config.task.require_usable("task")


def require_readable_splits(config: Config) -> None:
    """Read the task's data and the user's pairs now, so that a bad row is refused before the first
    step."""
    for split in (Split.train, config.eval.split):
        if not len(config.task.examples(split)):
            raise UserError(f"task={config.task.name}: split {split.value} has no rows")
    path, key = pairs_file(config)
    if path:
        examples = pair_examples(path, key, pair_columns(config))
        if isinstance(config.model, ScratchModel):
            # Its tokenizer is known before the stages that the run may need are trained.
            check_end(config.task.tokenizer(), config.task.chat_form, examples[0])


def require_working_parts(config: Config) -> None:
    """Score one reference answer by every function of the user's own, begin an episode of the
    task's environment, and open the models that are read late, so that one that cannot is refused
    before the first step."""
    require_working_environment(config)
    if trains_proxy(config):
        require_readable(config.proxy, "proxy.path")
    examples = config.task.examples(Split.train)
    # Of all columns, so that a refusal names those that there are.
    example = as_examples(examples).keeping(None)[0]
    for key in ("reward", "judge"):
        for place, part in named_parts(key, getattr(config, key)):
            part.require_working(place, example)

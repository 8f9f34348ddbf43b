"""Rules of models and references, of reward models, and of the pairs that they learn from."""

from __future__ import annotations

import math
from typing import Any

from rlhf_lab.algos.corrections.common import RATIOS
from rlhf_lab.evaluation.options import Validate
from rlhf_lab.experiment.config.config import Config
from rlhf_lab.experiment.rules.derived import (
    has_judge,
    has_references,
    judged_tokens,
    observation_tokens,
    pairs_file,
    response_tokens,
    sft_tokens,
    trains_on_labels,
    trains_proxy,
)
from rlhf_lab.models.borders import longest_row
from rlhf_lab.models.options import PretrainedModel, ScratchModel, require_peft
from rlhf_lab.rewards.options import named_parts, parts
from rlhf_lab.types.errors import UserError, refuse_first_of

PLAIN = "none"


def check_adapters(config: Config) -> None:
    """Adapters are of the policy alone, in one process, over a reference that does not move."""
    if config.proxy.lora_rank:
        raise UserError(
            f"proxy.lora_rank={config.proxy.lora_rank}: reward models are trained whole; pass "
            "proxy.lora_rank=0"
        )
    if not config.model.lora_rank:
        return
    require_peft("model.lora_rank", "model.lora_rank=0")
    if config.engine.shares_work:
        raise UserError(
            f"model.lora_rank={config.model.lora_rank} with engine={config.engine.name}: adapters "
            "are trained in one process; pass engine=single, or model.lora_rank=0"
        )
    if config.algo.needs.reference_every:
        raise UserError(
            f"model.lora_rank={config.model.lora_rank} with algo={config.algo.name}: its reference "
            "moves, and the reference of adapters is the model without them, which cannot; pass "
            "model.lora_rank=0, or another algorithm"
        )


def check_precision(config: Config) -> None:
    """Proxies are trained in the precision of their weights, without float32 masters: a step of
    3e-6 on a weight of 0.02 is below bfloat16's resolution of 2^-9, and nothing is learned."""
    model = config.proxy
    if not trains_proxy(config) or not isinstance(model, PretrainedModel):
        return
    if model.dtype != "float32":
        raise UserError(
            f"proxy.dtype={model.dtype}: the optimizer of reward models would round its steps to "
            "it, and small ones are lost; pass proxy.dtype=float32, or reward.path=<a trained one>"
        )


def require_readable(model: ScratchModel | PretrainedModel, key: str) -> None:
    """Open config and tokenizer of weights that exist already. Raises UserError, naming the option
    `key`, where they cannot be read."""
    if not isinstance(model, PretrainedModel):
        return
    # With torch, which the rules are made without.
    from rlhf_lab.models.causal_lm import gguf_file, load_tokenizer, without_adapters
    from rlhf_lab.models.loading import load_config_of

    load_tokenizer(model, None, key)
    below, named = without_adapters(model, key)
    if not gguf_file(below, named):
        load_config_of(below.path, named, below.revision)


def check_lengths(config: Config) -> None:
    """Prompt and response must fit the model's context, where the config alone decides it."""
    models = {"model": config.model} | ({"proxy": config.proxy} if trains_proxy(config) else {})
    check_cut(config)
    prompt = config.task.max_prompt_tokens
    response = max(response_tokens(config), judged_tokens(config), sft_tokens(config) - prompt)
    response += observation_tokens(config)
    length = prompt + response
    for key, model in models.items():
        if model.context is not None and length > model.context:
            other = f"raise {key}.max_positions"
            if key == "proxy" and config.model.is_pretrained:
                # A proxy from random weights would not know the policy's tokens.
                other = f"pass model@proxy={config.model.name} (any model of its vocabulary)"
            raise UserError(
                f"task.max_prompt_tokens={config.task.max_prompt_tokens} plus responses of "
                f"{response} tokens do not fit {key}.max_positions="
                f"{model.context}: {other} or lower the lengths"
            )


def check_cut(config: Config) -> None:
    """The longest prompt leaves room for a token and the end in a row of SFT."""
    most, prompt = config.sft.max_tokens, config.task.max_prompt_tokens
    if most and most < prompt + 2:
        raise UserError(
            f"sft.max_tokens={most} leaves no room for a reference after prompts of "
            f"task.max_prompt_tokens={prompt}: raise it, or lower task.max_prompt_tokens"
        )


def check_context(config: Config, model: Any, longest: int = 0) -> None:
    """The same for a loaded model, whose context is known now. longest: tokens of a row of SFT."""
    context = longest_row(model.config)
    needed = max(config.task.max_prompt_tokens + response_tokens(config), longest)
    needed += observation_tokens(config)
    if context is not None and needed > context:
        raise UserError(
            f"task.max_prompt_tokens={config.task.max_prompt_tokens} plus responses of "
            f"{needed - config.task.max_prompt_tokens} tokens do not fit the {context} "
            f"tokens that rows of model={config.model.name} may have (its context; where longer "
            "rows change its rotary positions, as with longrope, those before the change): lower "
            "task.max_prompt_tokens or generator.max_new_tokens"
        )


def check_proxy(config: Config) -> None:
    """A proxy that is trained from random weights needs a tokenizer of the task's."""
    is_scratch = trains_proxy(config) and not config.proxy.is_pretrained
    if is_scratch and config.task.tokenizer() is None:
        raise UserError(
            f"reward={config.reward.name} with task={config.task.name} would train a proxy from "
            f"nothing (proxy={config.proxy.name}), and this task brings no tokenizer: pass "
            "reward.path=<hub name or folder of a reward model>, or model@proxy=<a pretrained "
            "model of the policy's vocabulary>"
        )


def named_reference(config: Config) -> str:
    """How to have reference answers: tasks of own rows name a column of them."""
    return str(config.task.other_references)


def check_references(config: Config) -> None:
    """Without references no proxy can be centred on them, and nothing be compared with them."""
    if has_references(config):
        return
    for key in ("reward", "judge"):
        for place, part in named_parts(key, getattr(config, key)):
            if part.reads_reference:
                other = f"{place}.style=rating" if part.reads_reference.startswith("style") else ""
                raise UserError(
                    f"{place}.{part.reads_reference} with task={config.task.name}: it compares "
                    "with a reference answer, and the task has none: pass "
                    f"{other or f'other options of {place}'}, or {named_reference(config)}"
                )
    if trains_proxy(config):
        scorers = "reward=function reward.path=MODULE.FUNCTION, reward.path=<a reward model>"
        if config.task.is_episodic:
            scorers = "reward=environment"
        raise UserError(
            f"reward={config.reward.name} with task={config.task.name}: a proxy is centred on the "
            f"scores of reference answers, and the task has none: pass {scorers}, or "
            f"{named_reference(config)}"
        )


def check_judge(config: Config) -> None:
    """`none` is allowed only as judge, and only if neither labels nor win-rates are needed."""
    for key in ("reward", "judge"):
        for place, part in named_parts(key, getattr(config, key)):
            if not part.scores and place != "judge":
                raise UserError(
                    f"{place}=none: a reward must score; choose another option of group reward"
                )
    if has_judge(config):
        return
    if trains_on_labels(config):
        raise UserError(
            f"algo={config.algo.name} trains on pairs, and judge=none can order none: pass "
            "generator.path=<file of pairs: prompt, chosen, rejected>, reward@judge=function "
            "judge.path=MODULE.FUNCTION, or an algorithm that samples, such as algo=online_dpo"
        )
    if trains_proxy(config) and not config.labels.path:
        raise UserError(
            f"reward={config.reward.name} trains a proxy on pairs, and judge=none can order none: "
            "pass labels.path=<pairs>, reward.path=<a reward model>, or reward@judge=function "
            "judge.path=MODULE.FUNCTION"
        )
    if config.eval.validate is Validate.judge:
        raise UserError(
            "eval.validate=judge with judge=none: nobody judges; pass eval.validate=proxy, or "
            "reward@judge=<option>"
        )


def require_judge(config: Config) -> None:
    """Refuse pairs that a judge must put in order if there is none."""
    if not has_judge(config):
        raise UserError(
            "judge=none: a judge puts the pairs in order; pass reward@judge=function "
            "judge.path=MODULE.FUNCTION, or another reward@judge; `rlhf-lab reward-model` takes "
            "pairs that are in order from labels.path"
        )


def check_sft(config: Config) -> None:
    """A model that is to be fine-tuned first needs something to learn."""
    for key in ("model", "proxy"):
        model = getattr(config, key)
        if model.is_pretrained and model.begins_by_stage:
            require_references(config, f"{key}.sft=true")


def require_references(config: Config, what: str) -> None:
    """Refuse what is trained on reference answers if there are none."""
    if not has_references(config):
        raise UserError(
            f"{what} needs reference answers, and task={config.task.name} has none: pass "
            f"{named_reference(config)}"
        )


def why_no_win_rate(config: Config) -> str:
    """Why an evaluation has no win-rate; '' if it has one."""
    if not has_judge(config):
        return "nobody judges (judge=none)"
    if not has_references(config):
        return f"the task has no reference answers (pass {named_reference(config)})"
    return ""


def check_pairs(config: Config) -> None:
    """Fixed pairs are two to a prompt, and no policy draws them."""
    if config.generator.draws_samples:
        return
    if config.run.group_size != 2:
        raise UserError(
            f"run.group_size={config.run.group_size} with generator=pairs: every prompt has one "
            "chosen and one rejected answer; pass run.group_size=2"
        )
    if config.algo.needs.greedy:
        raise UserError(
            f"algo={config.algo.name} with generator=pairs: its baseline is a greedy sample of the "
            "policy, which fixed pairs do not have; pass generator=hf or another algorithm"
        )
    if config.run.buffer_rounds:
        raise UserError(
            f"run.buffer_rounds={config.run.buffer_rounds} with generator=pairs: no sample is "
            "newer than another there, and the file is read again as it is; pass generator=hf"
        )


def check_offline(config: Config) -> None:
    """Fixed pairs among the samples: their prompts have two answers each, known by texts alone."""
    run = config.run
    if not run.offline_share:
        if run.offline_pairs:
            raise UserError(
                f"run.offline_pairs={run.offline_pairs} with run.offline_share=0: none of them "
                "would be read; pass run.offline_share=0.25 or leave the file out"
            )
        return
    key = f"run.offline_share={run.offline_share}"
    fixed = math.ceil(run.groups_generated * run.offline_share)
    reading = [part.name for part in parts(config.reward) if part.reads_example]
    refusals = (
        (
            not config.generator.draws_samples,
            "generator=pairs: all samples are fixed already; pass generator=hf",
        ),
        (
            run.group_size != 2,
            f"run.group_size={run.group_size}: every fixed prompt has one chosen and one rejected "
            "answer; pass run.group_size=2",
        ),
        (
            config.algo.needs.greedy,
            f"algo={config.algo.name}: its baseline is a greedy sample of the policy, which fixed "
            "pairs do not have; pass another algorithm",
        ),
        (
            bool(config.mode.segment_tokens),
            f"mode.segment_tokens={config.mode.segment_tokens}: fixed answers are not continued; "
            "pass mode.segment_tokens=0",
        ),
        (
            bool(reading),
            f"reward={reading[:1]}: it scores by the task's own rows, which the pairs are not; "
            "pass reward=reward_model or run.offline_share=0",
        ),
        (
            # All groups of a round could be fixed, or those that are left after a selection.
            fixed >= run.groups_per_round,
            f"{run.groups_per_round} groups in a round: up to {fixed} of them would be fixed, and "
            "none drawn; lower the share, or raise run.groups_per_update",
        ),
    )
    refuse_first_of(refusals, f"{key} with")


def unknown_writers(config: Config) -> str:
    """A warning where ratios need the log-probs of a file's unknown writers; else ''."""
    path, key = pairs_file(config)
    correction = config.correction.name
    if not path or (config.algo.objective not in RATIOS and correction == PLAIN):
        return ""
    of = f"algo={config.algo.name}"
    if config.algo.objective not in RATIOS:
        of = f"correction={correction} with {of}"
    return (
        f"{of} on {key}={path}: its ratios need the log-probs of the policy that wrote "
        "the answers; the reference's are taken for them, which is right for answers of the "
        "reference model alone"
    )

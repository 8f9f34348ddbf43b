"""Rules between models and the task, the engine and the algorithm that use them."""

from __future__ import annotations

from typing import Any

from rlhf_lab.experiment.config import Config
from rlhf_lab.experiment.derived import (
    judged_tokens,
    observation_tokens,
    response_tokens,
    sft_tokens,
    trains_proxy,
)
from rlhf_lab.models.borders import longest_row
from rlhf_lab.models.options import PretrainedModel, ScratchModel, require_peft
from rlhf_lab.types.errors import UserError


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

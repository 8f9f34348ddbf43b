"""Reward models: a language model's body with a scalar head on the last token."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForSequenceClassification

from rlhf_lab.models.causal_lm import save_folder, settled
from rlhf_lab.models.folders import require_files
from rlhf_lab.models.loading import (
    load_config_of,
    load_tokenizer_of,
    load_weights_of,
    require_head,
    require_vocabulary,
    shape_of,
    tokenizer_key,
)
from rlhf_lab.models.quiet import quiet_transformers
from rlhf_lab.models.weights import with_parameters_in
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.precision import Precision

OFFSET = "reward_offset"


def reward_model_from(policy: Any, seed: int, head_std: float = 0.0) -> Any:
    """The policy's body under a new head without bias, drawn from N(0, head_std^2); a head_std of 0
    is 1/sqrt(d+1) (arXiv:2403.17031, detail 11)."""
    config = policy.config.__class__.from_dict(policy.config.to_dict())
    config.num_labels = 1
    std = head_std or 1 / math.sqrt(config.hidden_size + 1)
    with quiet_transformers(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForSequenceClassification.from_config(config, trust_remote_code=False)
        torch.nn.init.normal_(model.score.weight, std=std)
    model.base_model.load_state_dict(policy.base_model.state_dict())
    return settled(model.to(policy.dtype))


def save_reward_model(model: Any, tokenizer: Any, folder: Path, offset: float) -> None:
    """A folder that transformers loads; the offset travels in its config."""
    setattr(model.config, OFFSET, offset)
    save_folder(model, tokenizer, folder)


def load_reward_model(
    path: str, key: str = "reward.path", tokenizer: str = ""
) -> tuple[Any, Any, float]:
    """Model in eval mode, tokenizer, and the offset to subtract from its scores (0 if none).

    Any sequence-classification model. Refuses one without weights for its head (the head would be
    drawn at random), and one whose tokenizer has tokens without an embedding. path, tokenizer: a
    folder, or a hub name with or without @REVISION; the tokenizer is beside the model if none is
    named. key: the option that named the model.
    """
    model = load_weights_of(AutoModelForSequenceClassification, path, key)
    own_tokenizer = scorer_tokenizer(model, path, key, tokenizer)
    return settled(model), own_tokenizer, offset_of(model, path, key)


def open_reward_model(path: str, key: str, tokenizer: str = "") -> tuple[Any, Any]:
    """The model without weights, and its tokenizer: `load_reward_model` for who must know in
    seconds whether it could be read. What the weights alone show is refused later."""
    require_files(path, key)
    model = reward_model_shape(path, key)
    require_head(AutoModelForSequenceClassification, model, path, key)
    offset_of(model, path, key)
    return model, scorer_tokenizer(model, path, key, tokenizer)


def scorer_tokenizer(model: Any, path: str, key: str, tokenizer: str) -> Any:
    """The tokenizer of a reward model, every token of which has an embedding."""
    named = (tokenizer, tokenizer_key(key)) if tokenizer else (path, key)
    found = load_tokenizer_of(*named)
    require_vocabulary(model, found, *named)
    return found


def for_scores(model: Any, device: torch.device, dtype: Precision = Precision.auto) -> Any:
    """The model in eval mode on the device that it scores on, its body in `dtype` and all modules
    beside the body (poolers and the head) in float32: bfloat16 has steps of 0.06 near 12, which tie
    samples and order pairs otherwise.
    """
    body_dtype = getattr(torch, dtype.on(device.type).value)
    model = with_parameters_in(model.eval().to(device), body_dtype)
    for module in model.children():
        if module is not model.base_model and body_dtype is not torch.float32:
            module.float().register_forward_pre_hook(in_float32)
    return model


def in_float32(_: Any, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Arguments of a module, numbers of lower precision as float32."""
    return tuple(x.float() if torch.is_tensor(x) and x.is_floating_point() else x for x in inputs)


def offset_of(model: Any, path: str, key: str) -> float:
    """The offset in a config, 0 if there is none. Raises UserError if it is not a number."""
    found = getattr(model.config, OFFSET, 0.0)
    if isinstance(found, bool) or not isinstance(found, int | float) or not math.isfinite(found):
        raise UserError(
            f"{key}={path}: config.json has {OFFSET}={str(found)[:60]}, which is no number: pass "
            "the folder as it was saved"
        )
    return float(found)


def reward_model_shape(path: str, key: str = "reward.path") -> Any:
    """The model of `load_reward_model` from its config alone, without weights."""
    return shape_of(AutoModelForSequenceClassification, load_config_of(path, key), path, key)


def chosen_label(model: Any, path: str, label: int, key: str = "reward.path") -> int:
    """Index of the logit that is the reward; -1 is the only one. Raises UserError if ambiguous.
    key: the option that named the model."""
    count = int(model.config.num_labels)
    if label == -1 and count == 1:
        return 0
    if not 0 <= label < count:
        names = ", ".join(f"{place} {name}" for place, name in model.config.id2label.items())
        option = f"{key.rpartition('.')[0]}.label"
        raise UserError(
            f"{option}={label}, but {key}={path} has {count} labels ({names}): pass {option}="
            "<number of the one whose logit is the reward>"
        )
    return label

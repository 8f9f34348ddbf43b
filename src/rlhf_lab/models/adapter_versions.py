"""Versions of a policy with adapters: these alone in files, merged weights where it samples."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from rlhf_lab.models.adapters import ADAPTER, merged_weight, plain_names
from rlhf_lab.models.lora import require_peft
from rlhf_lab.models.without_weights import with_parameters
from rlhf_lab.types.data import Adapters, Weights

# What the names of tensors in files of peft begin with.
PREFIX = "base_model.model."


def adapters_of(model: Any) -> Adapters:
    """A copy of a model's adapters on the host."""
    from peft import get_peft_model_state_dict

    config = model.peft_config[ADAPTER].to_dict() | {"inference_mode": True}
    # Sets have another order in each process.
    plain = {name: sorted(v) if isinstance(v, set) else v for name, v in config.items()}
    state = get_peft_model_state_dict(model, adapter_name=ADAPTER, save_embedding_layers=False)
    return Adapters(plain, {f"{PREFIX}{name}": own(tensor) for name, tensor in state.items()})


def own(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu", copy=True).contiguous()


def fill_adapters(model: Any, weights: Weights) -> None:
    """Copy a version's adapters into those of a model. Raises ValueError if these are others."""
    from peft import set_peft_model_state_dict

    assert weights.adapters is not None
    given = weights.adapters.state
    shapes = {name: tensor.shape for name, tensor in adapters_of(model).state.items()}
    held = {name: tensor.shape for name, tensor in given.items()}
    if wrong := {name for name, _ in shapes.items() ^ held.items()}:
        raise ValueError(
            f"adapters of version {weights.version} are of another model: they differ in "
            f"{sorted(wrong)[:3]}"
        )
    plain = {name.removeprefix(PREFIX): tensor for name, tensor in given.items()}
    set_peft_model_state_dict(model, plain, adapter_name=ADAPTER)


def merged_version(model: Any, weights: Weights) -> Weights:
    """A version from a file, with its weights on the host: W + scale * B A in float32,
    as training merges them, where it is adapters. model: the plain one that they were trained
    beside, which stays as it is. Raises UserError without peft."""
    if weights.adapters is None:
        return weights
    require_peft(f"version {weights.version}, which is adapters,")
    from peft import PeftConfig, inject_adapter_in_model

    adapted = with_parameters(model, dict(model.named_parameters()))
    inject_adapter_in_model(PeftConfig.from_peft_type(**weights.adapters.config), adapted)
    fill_adapters(adapted, weights)
    state = {
        plain: merged_weight(adapted, name).cpu() for plain, name in plain_names(adapted).items()
    }
    return Weights(weights.version, state, weights.adapters)

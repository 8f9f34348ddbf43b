"""Weights of models: loading a version, its digest, their number; and models whose weights are
elsewhere (on the device `meta`), which are built, sent to other processes, cut into parts, filled.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.overrides import TorchFunctionMode

from rlhf_lab.types.data import Weights


def load_weights(model: Any, weights: Weights) -> None:
    """Copy a version's tensors into a model; the names must be exactly those of its parameters.

    Tied parameters have one name among the parameters and more in the state, hence not `strict`.
    """
    require_names(model, weights)
    model.load_state_dict(weights.state, strict=False)


def require_names(model: Any, weights: Weights) -> None:
    """Raise ValueError unless the tensors have exactly the names of a model's parameters."""
    names = {name for name, _ in model.named_parameters()}
    if names != set(weights.state):
        raise ValueError(
            f"weights of version {weights.version} are of another model: they differ in "
            f"{sorted(names ^ set(weights.state))[:3]}"
        )


def weights_digest(weights: Weights) -> str:
    """SHA-256 over names and bytes: equal digests mean equal bits."""
    digest = hashlib.sha256()
    for name in sorted(weights.state):
        digest.update(name.encode())
        flat = weights.state[name].detach().contiguous().view(-1).view(torch.uint8)
        digest.update(flat.cpu().numpy().data)
    return digest.hexdigest()


def with_parameters_in(model: Any, dtype: torch.dtype) -> Any:
    """The model with its parameters in a type. Buffers keep theirs: rotary frequencies of half
    precision would move positions."""
    for parameter in model.parameters():
        parameter.data = parameter.data.to(dtype)
    return model


def num_parameters(model: torch.nn.Module) -> int:
    """Parameters of a model, tied ones counted once."""
    return sum(parameter.numel() for parameter in model.parameters())


Module = TypeVar("Module", bound=torch.nn.Module)


def meta_model(model: Module, dtype: torch.dtype | None = None) -> Module:
    """A copy whose parameters are on the meta device. Buffers keep their values; tied parameters
    stay tied. dtype: of the parameters; None keeps theirs."""
    empty = {
        name: torch.empty_like(parameter, device="meta", dtype=dtype)
        for name, parameter in model.named_parameters()
    }
    return with_parameters(model, empty)


def with_parameters(model: Module, state: Mapping[str, Tensor]) -> Module:
    """A copy with these tensors as its parameters, which are not copied. state: one tensor for each
    parameter, by name; tied ones have one name."""
    found: dict[int, Parameter] = {}
    for name, parameter in model.named_parameters():
        found[id(parameter)] = Parameter(state[name], requires_grad=parameter.requires_grad)
    return copy.deepcopy(model, found)


def release_weights(model: torch.nn.Module) -> None:
    """Free the memory of a model whose weights are elsewhere from now on."""
    for parameter in model.parameters():
        parameter.data = torch.empty(0, dtype=parameter.dtype, device=parameter.device)


class MetaWeights(TorchFunctionMode):
    """Inside, tensors that are made empty, as weights are, have shapes alone (device `meta`).

    Buffers have values, such as the frequencies of rotary positions. Unlike `torch.device("meta")`,
    which makes these on `meta` too, it leaves a model that computes once it is given weights.
    """

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = dict(kwargs or {})
        if func is torch.empty and given.get("device") is None:
            given["device"] = "meta"
        return func(*args, **given)

"""Models without weights: to send to other processes, to cut into parts, to fill again."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TypeVar

import torch
from torch import Tensor
from torch.nn import Parameter

Module = TypeVar("Module", bound=torch.nn.Module)


def without_weights(model: Module, dtype: torch.dtype | None = None) -> Module:
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

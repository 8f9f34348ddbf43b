"""Models without memory for weights: built, sent to other processes, cut into parts, filled."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.overrides import TorchFunctionMode

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


class WithoutWeights(TorchFunctionMode):
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

"""AdamW's state under ZeRO, and copies of tensors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from rlhf_lab.training.engines.tensors import step_device


def parts_of(state: Any) -> Iterator[str]:
    """Names of the optimizer's tensors, none before the first step."""
    yield from dict.fromkeys(part for entry in state.values() for part in entry)


def make_state(optimizer: Any, flat: list[Tensor], part: str, value: Tensor) -> bool:
    """Create a part of the optimizer's state where it is missing; returns whether it was. The step
    count is set."""
    is_missing = False
    for buffer in flat:
        entry = optimizer.state[buffer]
        if part == "step":
            entry[part] = value.to(step_device(optimizer, buffer)).clone()
        elif part not in entry:
            entry[part] = torch.zeros_like(buffer)
            is_missing = True
    return is_missing


def whole(parameter: torch.nn.Parameter) -> Tensor:
    """The parameter's own memory, without its gradient."""
    return parameter.detach()


def cloned(tensor: Tensor) -> Tensor:
    """A copy on the host."""
    return tensor.detach().cpu().clone()

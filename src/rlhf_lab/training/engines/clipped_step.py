"""An optimizer step with clipped gradients, and the angle between those of consecutive updates."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from rlhf_lab.training.engines.policy_with_values import PolicyWithValues
from rlhf_lab.training.engines.tensors import Tensors, clipped_norms, whole
from rlhf_lab.training.optim import Optim

# A part of the optimizer's state, which checkpoints have: a resumed run measures the same numbers.
PREVIOUS = "previous_gradient"


def clipped_step(
    networks: PolicyWithValues, tensors: Tensors, optim: Optim, learning_rate: float
) -> dict[str, float]:
    """Clip, and make a step if all norms are finite. Returns the norms before clipping and, with
    `optim.gradient_cosine`, the cosine of the policy's gradients of this and the last update."""
    norms = clipped_norms(networks, optim.largest_norm)
    if not all(map(math.isfinite, norms.values())):
        return norms
    if not optim.gradient_cosine:
        tensors.step(learning_rate)
        return norms
    found = cosine(consecutive(networks.policy.parameters(), tensors.optimizer))
    tensors.step(learning_rate)
    keep_gradients(tensors.optimizer)
    return norms if found is None else {**norms, "gradient_cosine": found}


def consecutive(
    parameters: Iterable[Tensor], optimizer: torch.optim.Optimizer
) -> list[tuple[Tensor, Tensor]]:
    """The present gradient and that of the last update, of all parameters that have both."""
    return [
        (parameter.grad, own[PREVIOUS])
        for parameter in parameters
        if parameter.grad is not None and PREVIOUS in (own := optimizer.state.get(parameter, {}))
    ]


def cosine(pairs: Iterable[tuple[Tensor, Tensor]]) -> float | None:
    """The cosine of two vectors whose parts are given side by side; None if there are none or a
    vector is zero. Parts may be sharded: all processes must call it."""
    sums = [
        whole(term.sum()).double()
        for one, other in pairs
        for term in (one * other, one.square(), other.square())
    ]
    if not sums:
        return None
    product, first, second = torch.stack(sums).view(-1, 3).sum(dim=0).tolist()
    if not first or not second:
        return None
    return float(max(-1.0, min(1.0, product / math.sqrt(first) / math.sqrt(second))))


def keep_gradients(optimizer: torch.optim.Optimizer) -> None:
    """Copy the gradients of the update that was made. AdamW takes a parameter with any state for
    one that it has made steps of, so this comes after its step."""
    for parameter, own in optimizer.state.items():
        if parameter.grad is None:
            continue
        if PREVIOUS in own:
            own[PREVIOUS].copy_(parameter.grad)
        else:
            own[PREVIOUS] = parameter.grad.detach().clone()

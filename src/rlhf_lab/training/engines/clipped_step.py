"""An optimizer step with clipped gradients, and with what they repeat of the last update's measured
and bounded."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from rlhf_lab.training.engines.policy_with_values import PolicyWithValues
from rlhf_lab.training.engines.tensors import TensorsBackend, clipped_norms, whole
from rlhf_lab.training.optim import Optim

# A part of the optimizer's state, which checkpoints have: a resumed run measures the same numbers.
PREVIOUS = "previous_gradient"


class Angle(NamedTuple):
    """The cosine of two vectors, and the norm of the first over that of the second."""

    cosine: float
    ratio: float


def clipped_step(
    networks: PolicyWithValues, backend: TensorsBackend, optim: Optim, learning_rate: float
) -> dict[str, float]:
    """Clip, and make a step if all norms are finite. Returns the norms before clipping and, with
    `optim.gradient_cosine`, the cosine of the policy's gradients of this and the last update and
    whether it was bounded."""
    norms = clipped_norms(networks, optim.largest_norm)
    if not all(map(math.isfinite, norms.values())):
        return norms
    if not optim.gradient_cosine:
        backend.optimizer_step(learning_rate)
        return norms
    pairs = consecutive(networks.policy.parameters(), backend.optimizer)
    found = angle(pairs)
    is_bounded = found is not None and found.cosine > optim.max_gradient_cosine
    if found is not None and is_bounded:
        project(pairs, found, optim.max_gradient_cosine)
    backend.optimizer_step(learning_rate)
    if not is_bounded:
        keep_gradients(backend.optimizer)
    if found is None:
        return norms
    return {**norms, "gradient_cosine": found.cosine, "gradient_projected": float(is_bounded)}


def consecutive(
    parameters: Iterable[Tensor], optimizer: torch.optim.Optimizer
) -> list[tuple[Tensor, Tensor]]:
    """The present gradient and that of the last update, of all parameters that have both."""
    return [
        (parameter.grad, own[PREVIOUS])
        for parameter in parameters
        if parameter.grad is not None and PREVIOUS in (own := optimizer.state.get(parameter, {}))
    ]


def angle(pairs: Iterable[tuple[Tensor, Tensor]]) -> Angle | None:
    """Of two vectors whose parts are given side by side; None if there are none or a vector is
    zero. Parts may be sharded: all processes must call it."""
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
    cosine = max(-1.0, min(1.0, product / math.sqrt(first) / math.sqrt(second)))
    return Angle(cosine, math.sqrt(first) / math.sqrt(second))


def project(pairs: Sequence[tuple[Tensor, Tensor]], found: Angle, bound: float) -> None:
    """Subtract as much of the last update's gradient that the cosine with it falls from
    `found.cosine` to `bound`, below 1, and keep the present gradient as it was in place of the
    last (arXiv:2603.01501, whose numbers are not known)."""
    beside = math.sqrt(1 - found.cosine**2)
    excess = found.ratio * (found.cosine - beside * bound / math.sqrt(1 - bound**2))
    for gradient, last in pairs:
        projected = gradient - excess * last
        last.copy_(gradient)
        gradient.copy_(projected)


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

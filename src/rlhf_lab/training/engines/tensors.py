"""A backend of tensors by name, whole or sharded (DTensors): parameters, reference, AdamW's state,
and an optimizer step with clipped gradients.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, distribute_tensor

from rlhf_lab.models.weights import with_parameters
from rlhf_lab.training.engines.distributed import Processes
from rlhf_lab.training.engines.parameter_backend import REFERENCE, WEIGHT, ParameterBackend
from rlhf_lab.training.engines.policy_with_values import PolicyWithValues
from rlhf_lab.training.optim import Optim


class TensorsBackend(ParameterBackend):
    """Parameters, the reference if it is a separate model, and AdamW's state, by name, whole or as
    DTensors."""

    def __init__(
        self, networks: PolicyWithValues, reference: PolicyWithValues | None, optim: Optim
    ) -> None:
        self.trained = dict(networks.trained())
        self._reference = dict(reference.tensors()) if reference else {}
        self.optimizer = adamw(self.trained.values(), optim)

    def shapes(self) -> dict[str, torch.Size]:
        """Shapes of the whole parameters."""
        return {name: parameter.shape for name, parameter in self.trained.items()}

    def is_finite(self) -> bool:
        """Sums are finite only if all their terms are (or overflow, which is refused as well)."""
        sums = [local(p.detach()).float().sum() for p in self.trained.values()]
        return bool(torch.isfinite(torch.stack(sums).sum()))

    def optimizer_step(self, learning_rate: float) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        self.optimizer.step()

    def move_reference(self, decay: float) -> None:
        with torch.no_grad():
            for name, reference in self._reference.items():
                local(reference).lerp_(local(self.trained[name]), 1 - decay)

    def optimizer_parts(self) -> Iterator[str]:
        states = self.optimizer.state.values()
        yield from dict.fromkeys(part for state in states for part in state)

    def weight(self, name: str, dtype: torch.dtype) -> Tensor:
        """A whole parameter on its device, cast before it is gathered; not always a copy."""
        return whole(self.trained[name].detach().to(dtype))

    def read(self, name: str, part: str) -> Tensor:
        """A copy of a whole tensor, on the host."""
        return whole(self._tensor(name, part).detach()).cpu().clone()

    def shard(self, name: str, part: str) -> Tensor:
        """A tensor as it is sharded; not a copy."""
        return self._tensor(name, part).detach()

    def write(self, name: str, part: str, value: Tensor) -> None:
        """Copy a whole tensor into a parameter or state; missing optimizer state is created."""
        parameter = self.trained[name]
        if part not in (WEIGHT, REFERENCE) and part not in self.optimizer.state[parameter]:
            if value.dim():
                fresh = torch.zeros_like(parameter.detach())
            else:
                fresh = value.to(step_device(self.optimizer, parameter)).clone()
            self.optimizer.state[parameter][part] = fresh
        fill(self._tensor(name, part), value)

    def _tensor(self, name: str, part: str) -> Tensor:
        if part == WEIGHT:
            return self.trained[name]
        if part == REFERENCE:
            return self._reference[name]
        tensor: Tensor = self.optimizer.state[self.trained[name]][part]
        return tensor


def received(networks: PolicyWithValues, processes: Processes) -> PolicyWithValues:
    """The networks with rank 0's parameters, whole, on the host of every rank."""
    if processes.size == 1:
        return networks
    own = dict(networks.named_parameters()) if processes.is_main else {}
    sent = processes.broadcast_tensors(own)
    if processes.is_main:
        for _ in sent:
            pass
        return networks
    return with_parameters(networks, dict(sent))


def adamw(parameters: Iterable[torch.nn.Parameter], optim: Optim) -> torch.optim.AdamW:
    """The optimizer of every engine, before the first learning rate. It is fused on a GPU, where it
    reads and writes each tensor once. Weights of half precision are a bug: steps smaller than
    their resolution would be lost."""
    trained = list(parameters)
    if half := {str(p.dtype) for p in trained if p.dtype.itemsize < torch.float32.itemsize}:
        raise RuntimeError(f"AdamW would train weights in {', '.join(sorted(half))} themselves")
    is_on_gpu = all(parameter.device.type == "cuda" for parameter in trained)
    return torch.optim.AdamW(
        trained,
        lr=optim.lr,
        betas=(optim.beta1, optim.beta2),
        eps=optim.eps,
        weight_decay=optim.weight_decay,
        fused=is_on_gpu or None,
    )


def step_device(optimizer: torch.optim.Optimizer, parameter: Tensor) -> torch.device:
    """Where AdamW counts the steps of a parameter: on its device if it is fused, else on the
    host."""
    is_fused = bool(optimizer.param_groups[0].get("fused"))
    return parameter.device if is_fused else torch.device("cpu")


def local(tensor: Tensor) -> Tensor:
    """This process's shard of a tensor."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def whole(tensor: Tensor) -> Tensor:
    """The whole of a tensor that may be sharded; all processes must call it."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def fill(tensor: Tensor, value: Tensor) -> None:
    """Copy a whole tensor into one that may be sharded."""
    with torch.no_grad():
        if not isinstance(tensor, DTensor):
            tensor.copy_(value)
            return
        source = value.to(tensor.to_local().device, tensor.dtype)
        part = distribute_tensor(source, tensor.device_mesh, tensor.placements, src_data_rank=None)
        tensor.to_local().copy_(part.to_local())


def clipped_norms(networks: PolicyWithValues, max_norm: float) -> dict[str, float]:
    """Clip the gradients of policy and value model separately; returns the norms before."""
    trained = {"grad_norm": networks.policy, "value_grad_norm": networks.values}
    norms = {}
    for name, network in trained.items():
        if network is not None:
            norm = torch.nn.utils.clip_grad_norm_(network.parameters(), max_norm)
            norms[name] = float(whole(norm))
    return norms


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

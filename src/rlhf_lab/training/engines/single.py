"""The backend of one process with all parameters on one device, and its passes in bfloat16 over
float32 masters.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Self

import torch
from torch import Tensor
from torch.func import functional_call

from rlhf_lab.models.adapters import (
    adapters_of,
    adapters_off,
    fill_adapters,
    has_adapters,
    kept_share,
    merged_weight,
    plain_names,
)
from rlhf_lab.models.forward import TokenRows
from rlhf_lab.training.engines.options import EngineContext, EngineOptions
from rlhf_lab.training.engines.parameter_backend import WEIGHT, ReferenceUse
from rlhf_lab.training.engines.policy_with_values import (
    POLICY,
    PassKind,
    PassLayout,
    PolicyWithValues,
)
from rlhf_lab.training.engines.tensors import TensorsBackend, clipped_step
from rlhf_lab.training.optim import Optim
from rlhf_lab.types.data import Adapters, PolicyOutput, Weights
from rlhf_lab.types.precision import Precision

# Modules whose weights autocast rounds wherever they are used.
ROUNDED = ("Linear", "Conv1D")


def with_masters(networks: PolicyWithValues) -> PolicyWithValues:
    """The same networks with everything that is trained in float32; frozen weights below adapters
    stay as they are."""
    for parameter in networks.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.float()
    return networks


def autocast(device: torch.device, is_low: bool) -> AbstractContextManager[object]:
    """Inside, matrix products and attention are in bfloat16 if `is_low`; norms, softmax and sums
    stay in float32. Passes that are computed again in the backward pass keep the choice."""
    return torch.autocast(device.type, torch.bfloat16) if is_low else nullcontext()


def round_frozen(networks: PolicyWithValues, is_reference: bool = True) -> None:
    """Hold the matrices of frozen networks in bfloat16, as autocast rounds them in every pass: half
    the memory and the same bits. Embeddings and norms, which it does not round, stay.

    is_reference: whether nothing else reads them. Below adapters those alone are held so which lose
    nothing, since versions are made of them.
    """
    embeddings = {
        id(parameter)
        for module in networks.modules()
        if isinstance(module, torch.nn.Embedding)
        for parameter in module.parameters()
    }
    for module in networks.modules():
        if type(module).__name__ in ROUNDED:
            for parameter in module.parameters(recurse=False):
                if id(parameter) in embeddings:
                    continue
                rounded = parameter.data.bfloat16()
                loses = parameter.requires_grad or not torch.equal(rounded.float(), parameter.data)
                if is_reference or not loses:
                    parameter.data = rounded


class SingleBackend(TensorsBackend):
    """See ParameterBackend. A policy with adapters is its own reference, with the adapters off; its
    weights are read with the adapters merged in.

    is_low: whether passes are in bfloat16; what is trained is float32 in any case. teacher: frozen
    networks that are the reference instead, of any size. drawn_in: the type that generators round
    the policy's weights to.
    """

    def __init__(
        self,
        networks: PolicyWithValues,
        optim: Optim,
        device: torch.device,
        use: ReferenceUse = ReferenceUse.frozen,
        is_low: bool = False,
        teacher: PolicyWithValues | None = None,
        drawn_in: torch.dtype = torch.float32,
    ) -> None:
        self.device = device
        self._is_low = is_low
        self.networks = with_masters(networks).to(device)
        self._merged = plain_names(networks.policy) if has_adapters(networks.policy) else {}
        own = None
        if teacher is not None:
            own = teacher.requires_grad_(False).to(device)
        elif not self._merged and use is not ReferenceUse.none:
            own = networks.reference(copy.deepcopy(networks.policy))
        if own is not None and is_low and use is ReferenceUse.frozen:
            round_frozen(own)
        if self._merged and is_low:
            round_frozen(self.networks, is_reference=False)
        self._drawn_in = drawn_in
        self._reference_networks = own or networks
        self._optim = optim
        self._other_weights: dict[str, Tensor] = {}
        super().__init__(self.networks, own, optim)

    @classmethod
    def of(cls, options: EngineOptions, context: EngineContext) -> Self:
        """The backend that options without `auto` name."""
        return cls(
            *(context.networks, context.optim, context.device, context.use),
            is_low=options.dtype is Precision.bfloat16,
            teacher=context.teacher,
            drawn_in=context.drawn_in,
        )

    def output(self, token_rows: TokenRows, kind: PassKind, layout: PassLayout) -> PolicyOutput:
        arguments = (token_rows, kind, layout)
        with autocast(self.device, self._is_low):
            if self._other_weights:
                output = functional_call(self.networks, self._other_weights, arguments)
            else:
                output = self.networks(*arguments)
        return PolicyOutput(*output)

    def reference(self, token_rows: TokenRows, layout: PassLayout) -> PolicyOutput:
        with adapters_off(self._reference_networks.policy), autocast(self.device, self._is_low):
            return PolicyOutput(*self._reference_networks(token_rows, PassKind.policy, layout))

    @contextmanager
    def no_gradients(self) -> Iterator[None]:
        with torch.inference_mode():
            yield

    @contextmanager
    def with_weights(self, weights: Iterable[tuple[str, Tensor]]) -> Iterator[None]:
        self._other_weights = {
            f"{POLICY}{self._merged.get(name, name)}": tensor.to(self.device)
            for name, tensor in weights
        }
        try:
            with adapters_off(self.networks.policy):
                yield
        finally:
            self._other_weights = {}

    def weight(self, name: str, dtype: torch.dtype) -> Tensor:
        if name in self._merged:
            return merged_weight(self.networks.policy, self._merged[name]).to(dtype)
        return super().weight(name, dtype)

    def read(self, name: str, part: str) -> Tensor:
        if part == WEIGHT and name in self._merged:
            return merged_weight(self.networks.policy, self._merged[name]).cpu()
        return super().read(name, part)

    def adapters(self) -> Adapters | None:
        return adapters_of(self.networks.policy) if self._merged else None

    def fill(self, weights: Weights) -> None:
        fill_adapters(self.networks.policy, weights)

    def begin(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)

    def backward(self, loss: Tensor, is_last: bool) -> None:
        loss.backward()  # type: ignore[no-untyped-call]

    def gradient_norm(self) -> float:
        grads = [p.grad for p in self.networks.policy.parameters() if p.grad is not None]
        return float(torch.nn.utils.get_total_norm(grads))

    def step(self, learning_rate: float) -> dict[str, float]:
        measured = clipped_step(self.networks, self, self._optim, learning_rate)
        if self._merged:
            measured["adapters_kept"] = kept_share(self.networks.policy, self._drawn_in)
        return measured

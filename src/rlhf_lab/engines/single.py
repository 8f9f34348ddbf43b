"""One process holds all parameters on one device."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.func import functional_call

from rlhf_lab.engines.actor import POLICY, Actor, Reads
from rlhf_lab.engines.tensors import Tensors, clipped_norms
from rlhf_lab.forward import Texts
from rlhf_lab.optim import Optim
from rlhf_lab.types import PolicyOutput


class SingleHolder:
    """See Holder."""

    def __init__(self, actor: Actor, optim: Optim, device: torch.device) -> None:
        self.device = device
        self._actor = actor.to(device)
        policy = copy.deepcopy(actor.policy).requires_grad_(False)
        self._reference = Actor(policy, None, actor.temperature)
        self._max_grad_norm = optim.max_grad_norm
        self._given: dict[str, Tensor] = {}
        self._tensors = Tensors(self._actor, self._reference, optim)
        self.shapes = self._tensors.shapes
        self.is_finite = self._tensors.is_finite
        self.move_reference = self._tensors.move_reference
        self.optimizer_parts = self._tensors.optimizer_parts
        self.read = self._tensors.read
        self.write = self._tensors.write

    def output(self, texts: Texts, reads: Reads, num_chunks: int) -> PolicyOutput:
        if self._given:
            asked = (texts, reads, num_chunks)
            return PolicyOutput(*functional_call(self._actor, self._given, asked))
        return PolicyOutput(*self._actor(texts, reads, num_chunks))

    def reference(self, texts: Texts, num_chunks: int) -> PolicyOutput:
        return PolicyOutput(*self._reference(texts, Reads.policy, num_chunks))

    @contextmanager
    def reading(self) -> Iterator[None]:
        with torch.inference_mode():
            yield

    @contextmanager
    def under(self, weights: Iterable[tuple[str, Tensor]]) -> Iterator[None]:
        self._given = {f"{POLICY}{name}": tensor.to(self.device) for name, tensor in weights}
        try:
            yield
        finally:
            self._given = {}

    def begin(self) -> None:
        self._tensors.optimizer.zero_grad(set_to_none=True)

    def backward(self, loss: Tensor, is_last: bool) -> None:
        loss.backward()  # type: ignore[no-untyped-call]

    def step(self, learning_rate: float) -> dict[str, float]:
        norms = clipped_norms(self._actor, self._max_grad_norm)
        if all(map(math.isfinite, norms.values())):
            self._tensors.step(learning_rate)
        return norms

"""The backend of DeepSpeed ZeRO: stages 0 to 3 partition nothing, optimizer, gradients, weights."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from rlhf_lab.models.forward import TokenRows
from rlhf_lab.training.engines.deepspeed_setup import make_engine, make_reference, quiet, storage_of
from rlhf_lab.training.engines.distributed import Processes, require_group
from rlhf_lab.training.engines.options import DeepSpeedOptions, Precision
from rlhf_lab.training.engines.parameter_backend import (
    REFERENCE,
    WEIGHT,
    ParameterBackend,
    ReferenceUse,
)
from rlhf_lab.training.engines.policy_with_values import PassKind, PassLayout, PolicyWithValues
from rlhf_lab.training.engines.tensors import received
from rlhf_lab.training.engines.zero import Reference, ReplicatedReference
from rlhf_lab.training.optim import Optim
from rlhf_lab.types.data import PolicyOutput


class DeepSpeedBackend(ParameterBackend):
    """See ParameterBackend. Policy and value model are clipped jointly: `grad_norm` is of both."""

    def __init__(
        self,
        networks: PolicyWithValues,
        optim: Optim,
        options: DeepSpeedOptions,
        device: torch.device,
        processes: Processes,
        use: ReferenceUse = ReferenceUse.frozen,
    ) -> None:
        """networks: whole in rank 0, which sends their parameters to the other ranks; those of
        other ranks are not read, and may be on the meta device."""
        require_group()
        self.device = device
        self._size = processes.size
        self._stage = options.stage
        self._max_grad_norm = optim.largest_norm
        is_low = options.dtype is Precision.bfloat16
        networks = received(networks, processes).float().to(device)
        self._trained = dict(networks.trained())
        self._shapes = {name: parameter.shape for name, parameter in self._trained.items()}
        masters = {n: p.detach().cpu().clone() for n, p in self._trained.items()} if is_low else {}
        self._reference_pass: Any = None
        self._reference: Reference = ReplicatedReference({})
        with quiet(device, processes.local_rank):
            if use is not ReferenceUse.none:
                reference = networks.reference(copy.deepcopy(networks.policy))
                self._reference_pass, self._reference = make_reference(
                    reference, options, processes.rank
                )
            self._engine = make_engine(networks, optim, options)
        self._storage = storage_of(self._engine, options.stage, processes.rank)
        self.sharding = self._storage.sharding
        self._is_settled = False
        for name, tensor in masters.items():
            # DeepSpeed makes its float32 masters from weights that it has already rounded.
            self._storage.write(self._trained[name], WEIGHT, tensor)

    def shapes(self) -> dict[str, torch.Size]:
        return self._shapes

    def output(self, token_rows: TokenRows, kind: PassKind, layout: PassLayout) -> PolicyOutput:
        self._is_settled = False
        return PolicyOutput(*self._engine(token_rows, kind, layout))

    def reference(self, token_rows: TokenRows, layout: PassLayout) -> PolicyOutput:
        self._is_settled = False
        return PolicyOutput(*self._reference_pass(token_rows, PassKind.policy, layout))

    @contextmanager
    def no_gradients(self) -> Iterator[None]:
        with torch.no_grad():
            yield
        self._settle()

    def flat(self, part: str) -> Mapping[str, Tensor]:
        self._settle()
        return self._storage.flat(part, self._trained)

    def places(self) -> Mapping[str, tuple[str, int]]:
        return self._storage.places(self._trained)

    def _settle(self) -> None:
        """Free the whole tensors that a pass left behind, before parts are changed or read."""
        if not self._is_settled:
            self._storage.settle()
            self._reference.settle()
            self._is_settled = True

    @contextmanager
    def with_weights(self, weights: Iterable[tuple[str, Tensor]]) -> Iterator[None]:
        self._settle()
        before = {}
        with torch.no_grad():
            for name, tensor in weights:
                part = self._storage.part(self._trained[name])
                before[name] = part.clone()
                part.copy_(self._storage.own(tensor, part))
            try:
                yield
            finally:
                self._settle()
                for name, part in before.items():
                    self._storage.part(self._trained[name]).copy_(part)

    def begin(self) -> None:
        self._engine.set_gradient_accumulation_boundary(False)

    def backward(self, loss: Tensor, is_last: bool) -> None:
        self._engine.set_gradient_accumulation_boundary(is_last)
        # Gradients are averaged over the processes, and the token weights are of the whole update.
        self._engine.backward(loss * self._size, scale_wrt_gas=False)

    def step(self, learning_rate: float) -> dict[str, float]:
        for group in self._engine.optimizer.param_groups:
            group["lr"] = learning_rate
        if self._stage == 0:
            parameters = list(self._trained.values())
            norm = float(torch.nn.utils.clip_grad_norm_(parameters, self._max_grad_norm))
            if not math.isfinite(norm):
                return {"grad_norm": norm}
            self._engine.step()
        else:
            self._engine.step()
            norm = float(self._engine.get_global_grad_norm())
        # DeepSpeed returns -1 where the norm is not finite.
        return {"grad_norm": norm if norm >= 0 else math.nan}

    def is_finite(self) -> bool:
        """A sum is finite only if all of its terms are (overflow aside, which is no better)."""
        self._settle()
        sums = [self._storage.part(p).float().sum() for p in self._trained.values()]
        return bool(torch.isfinite(torch.stack(sums).sum()))

    def move_reference(self, decay: float) -> None:
        self._settle()
        with torch.no_grad():
            for name in self._reference.names():
                policy = self._storage.part(self._trained[name])
                self._reference.part(name).lerp_(policy, 1 - decay)

    def optimizer_parts(self) -> Iterator[str]:
        yield from self._storage.optimizer_parts()

    def weight(self, name: str, dtype: torch.dtype) -> Tensor:
        return self.read(name, WEIGHT).to(dtype)

    def read(self, name: str, part: str) -> Tensor:
        self._settle()
        if part == REFERENCE:
            return self._reference.read(name)
        return self._storage.read(self._trained[name], part)

    def write(self, name: str, part: str, value: Tensor) -> None:
        self._settle()
        if part == REFERENCE:
            self._reference.write(name, value)
        else:
            self._storage.write(self._trained[name], part, value)

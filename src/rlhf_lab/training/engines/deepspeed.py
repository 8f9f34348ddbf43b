"""DeepSpeed ZeRO 0 to 3: what is in parts, from nothing to the weights themselves, is its stage."""

from __future__ import annotations

import contextlib
import copy
import io
import math
import os
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from rlhf_lab.models.forward import Texts
from rlhf_lab.training.engines.distributed import Processes, require_group
from rlhf_lab.training.engines.options import DeepSpeedOptions, Precision
from rlhf_lab.training.engines.parameter_backend import REFERENCE, WEIGHT
from rlhf_lab.training.engines.policy_with_values import PassKind, PassLayout, PolicyWithValues
from rlhf_lab.training.engines.tensors import adamw
from rlhf_lab.training.engines.zero import (
    FlatBufferStorage,
    PartitionedStorage,
    WholeStorage,
    ZeroStorage,
)
from rlhf_lab.training.engines.zero_reference import (
    PartitionedReference,
    Reference,
    ReplicatedReference,
)
from rlhf_lab.training.optim import Optim
from rlhf_lab.types.data import PolicyOutput

WHOLE = 3  # the stage from which on the weights themselves are in parts


class DeepSpeedBackend:
    """See ParameterBackend. Policy and value model are clipped jointly: `grad_norm` is of both."""

    def __init__(
        self,
        networks: PolicyWithValues,
        optim: Optim,
        options: DeepSpeedOptions,
        device: torch.device,
        processes: Processes,
    ) -> None:
        require_group()
        self.device = device
        self._size = processes.size
        self._stage = options.stage
        self._max_grad_norm = optim.max_grad_norm
        is_low = options.dtype is Precision.bfloat16
        networks = networks.float().to(device)
        self._trained = dict(networks.trained())
        self._shapes = {name: parameter.shape for name, parameter in self._trained.items()}
        masters = {n: p.detach().cpu().clone() for n, p in self._trained.items()} if is_low else {}
        reference = networks.reference(copy.deepcopy(networks.policy))
        with quiet(device, processes.local_rank):
            self._reads_reference, self._reference = make_reference(
                reference, options, processes.rank
            )
            self._engine = make_engine(networks, optim, options)
        self._storage = storage_of(self._engine, options.stage, processes.rank)
        self._is_settled = False
        for name, tensor in masters.items():
            # DeepSpeed makes its masters of weights that it has rounded already.
            self._storage.write(self._trained[name], WEIGHT, tensor)

    def shapes(self) -> dict[str, torch.Size]:
        return self._shapes

    def output(self, texts: Texts, kind: PassKind, layout: PassLayout) -> PolicyOutput:
        self._is_settled = False
        return PolicyOutput(*self._engine(texts, kind, layout))

    def reference(self, texts: Texts, layout: PassLayout) -> PolicyOutput:
        self._is_settled = False
        return PolicyOutput(*self._reads_reference(texts, PassKind.policy, layout))

    @contextmanager
    def no_gradients(self) -> Iterator[None]:
        with torch.no_grad():
            yield
        self._settle()

    def _settle(self) -> None:
        """Give up whole copies that a pass left behind, before parts are changed or read."""
        if not self._is_settled:
            self._storage.settle()
            self._reference.settle()
            self._is_settled = True

    @contextmanager
    def with_weights(self, weights: Iterable[tuple[str, Tensor]]) -> Iterator[None]:
        self._settle()
        kept = {}
        with torch.no_grad():
            for name, tensor in weights:
                part = self._storage.part(self._trained[name])
                kept[name] = part.clone()
                part.copy_(self._storage.own(tensor, part))
            try:
                yield
            finally:
                self._settle()
                for name, part in kept.items():
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
        # DeepSpeed says -1 where the norm is not finite.
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


def storage_of(engine: Any, stage: int, rank: int) -> ZeroStorage:
    """Where a stage keeps its tensors."""
    if stage == 0:
        return WholeStorage(engine)
    return PartitionedStorage(engine, rank) if stage == WHOLE else FlatBufferStorage(engine)


def make_engine(networks: PolicyWithValues, optim: Optim, options: DeepSpeedOptions) -> Any:
    """DeepSpeed's engine over all parameters, whose optimizer is torch's AdamW."""
    import deepspeed

    optimizer = adamw(networks.parameters(), optim)
    buffers = {name: buffer.clone() for name, buffer in networks.named_buffers()}
    # Stage 0 leaves no trace of the norm that it clips by.
    given = settings(options) | {"gradient_clipping": optim.max_grad_norm if options.stage else 0.0}
    engine, *_ = deepspeed.initialize(model=networks, optimizer=optimizer, config=given)
    restore_buffers(networks, buffers)
    engine.module.eval()
    return engine


def make_reference(
    networks: PolicyWithValues, options: DeepSpeedOptions, rank: int
) -> tuple[Any, Reference]:
    """A frozen copy that can be asked, in parts where the policy is."""
    import deepspeed

    parameters = dict(networks.tensors())
    buffers = {name: buffer.clone() for name, buffer in networks.named_buffers()}
    if options.stage < WHOLE:
        networks = networks.to(getattr(torch, options.dtype.value))
        restore_buffers(networks, buffers)
        return networks, ReplicatedReference(parameters)
    engine, *_ = deepspeed.initialize(model=networks, config=settings(options))
    restore_buffers(networks, buffers)
    engine.module.eval()
    return engine, PartitionedReference(engine, parameters, rank)


def restore_buffers(networks: PolicyWithValues, buffers: dict[str, Tensor]) -> None:
    """Buffers in their own precision: rotary frequencies in bfloat16 would move positions."""
    for name, buffer in networks.named_buffers():
        buffer.data = buffers[name].to(buffer.device)


def settings(options: DeepSpeedOptions) -> dict[str, Any]:
    """DeepSpeed's config. Micro-batches are made by the engine, so their sizes here are nominal."""
    # What stays whole by its size would be stale once its parts change.
    zero = {"stage": options.stage, "stage3_param_persistence_threshold": 0}
    given: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        "zero_allow_untested_optimizer": True,
        "zero_optimization": zero,
        "communication_data_type": "fp32",
        "steps_per_print": None,
    }
    if options.dtype is Precision.bfloat16:
        given |= {"bf16": {"enabled": True}, "data_types": {"grad_accum_dtype": "fp32"}}
    return given


@contextmanager
def quiet(device: torch.device, local_rank: int) -> Iterator[None]:
    """Import and start DeepSpeed without its prints, in the environment that it asks for.

    Its operator for collectives in shared memory is not used in training, and would be compiled for
    a minute: it is left out.
    """
    # DeepSpeed reads the number of this process on its host again and again.
    os.environ |= {"DS_ACCELERATOR": device.type, "LOCAL_RANK": str(local_rank)}
    # It calls collectives by names that PyTorch warns of, each time.
    warnings.filterwarnings("ignore", r"`torch\.distributed\.\w+` is deprecated", FutureWarning)
    with contextlib.redirect_stdout(io.StringIO()):
        import deepspeed

        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
        yield

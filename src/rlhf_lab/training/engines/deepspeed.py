"""The backend of DeepSpeed ZeRO: stage 2 partitions optimizer and gradients, 3 weights too."""

from __future__ import annotations

import contextlib
import copy
import io
import math
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor

from rlhf_lab.models.forward import TokenRows
from rlhf_lab.training.engines.distributed import Processes, require_group
from rlhf_lab.training.engines.options import DeepSpeedOptions
from rlhf_lab.training.engines.parameter_backend import (
    REFERENCE,
    WEIGHT,
    ParameterBackend,
    ReferenceUse,
    Sharding,
)
from rlhf_lab.training.engines.policy_with_values import PassKind, PassLayout, PolicyWithValues
from rlhf_lab.training.engines.tensors import adamw, received
from rlhf_lab.training.engines.zero import (
    FlatBufferStorage,
    PartitionedReference,
    PartitionedStorage,
    Reference,
    ReplicatedReference,
    ZeroStorage,
)
from rlhf_lab.training.optim import Optim
from rlhf_lab.types.data import PolicyOutput
from rlhf_lab.types.precision import Precision

PARTITIONED = 3  # the stage that partitions the weights themselves


def make_reference(
    networks: PolicyWithValues, options: DeepSpeedOptions, rank: int
) -> tuple[Any, Reference]:
    """The frozen reference, partitioned where the policy is: its forward pass, and its tensors."""
    parameters = dict(networks.tensors())
    if options.stage < PARTITIONED:
        with own_buffers(networks):
            networks = networks.to(getattr(torch, options.dtype.value))
        return networks, ReplicatedReference(parameters)
    engine = initialized(networks, settings(options))
    return engine, PartitionedReference(engine, parameters, rank)


def initialized(networks: PolicyWithValues, config: dict[str, Any], **more: Any) -> Any:
    """DeepSpeed's engine over the networks, in evaluation mode.

    Its stage 3 replaces `torch.nn.functional.linear` in the whole process by a function that keeps
    no gathered weights for the backward pass, and that rounds differently. Only linear layers of
    these networks get it here: a generator in the same process samples the bits of one in another.
    """
    import deepspeed

    linear = torch.nn.functional.linear
    try:
        with own_buffers(networks):
            engine, *_ = deepspeed.initialize(model=networks, config=config, **more)
        replaced = torch.nn.functional.linear
    finally:
        torch.nn.functional.linear = linear
    if replaced is not linear:
        for module in networks.modules():
            if isinstance(module, torch.nn.Linear):
                vars(module)["forward"] = partial(of_layer, replaced, module)
    engine.module.eval()
    return engine


def of_layer(linear: Callable[..., Tensor], layer: torch.nn.Linear, values: Tensor) -> Tensor:
    """What a linear layer makes of the values, by a function of values, weight and bias."""
    return linear(values, layer.weight, layer.bias)


@contextmanager
def own_buffers(networks: PolicyWithValues) -> Iterator[None]:
    """Buffers keep their own precision: rotary frequencies in bfloat16 would move positions."""
    before = {name: buffer.clone() for name, buffer in networks.named_buffers()}
    yield
    for name, buffer in networks.named_buffers():
        buffer.data = before[name].to(buffer.device)


def settings(options: DeepSpeedOptions) -> dict[str, Any]:
    """DeepSpeed's config. Micro-batches are made by the engine, so their sizes here are nominal."""
    # What stays whole by its size would be stale once its parts change.
    zero = {"stage": options.stage, "stage3_param_persistence_threshold": 0}
    config: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        "zero_allow_untested_optimizer": True,
        "zero_optimization": zero,
        "communication_data_type": "fp32",
        "steps_per_print": None,
    }
    if options.dtype is Precision.bfloat16:
        config |= {"bf16": {"enabled": True}, "data_types": {"grad_accum_dtype": "fp32"}}
    return config


@contextmanager
def quiet(device: torch.device, local_rank: int) -> Iterator[None]:
    """Import and start DeepSpeed without its prints, in the environment that it needs.

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


class DeepSpeedBackend(ParameterBackend):
    """See ParameterBackend. Policy and value model are clipped jointly: `grad_norm` is of both."""

    sharding = Sharding.buffers

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
            clip = {"gradient_clipping": optim.max_grad_norm}
            adam = adamw(networks.parameters(), optim)
            self._engine = initialized(networks, settings(options) | clip, optimizer=adam)
        self._storage: ZeroStorage = (
            FlatBufferStorage(self._engine)
            if options.stage < PARTITIONED
            else PartitionedStorage(self._engine, processes.rank)
        )
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

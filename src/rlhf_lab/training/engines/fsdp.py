"""The backend of PyTorch's FSDP2: every process has a shard of every tensor."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

from rlhf_lab.models.forward import TokenRows
from rlhf_lab.models.weights import meta_model, release_weights
from rlhf_lab.training.engines.distributed import Processes, require_group
from rlhf_lab.training.engines.options import FSDPOptions
from rlhf_lab.training.engines.parameter_backend import ReferenceUse, Sharding
from rlhf_lab.training.engines.policy_with_values import PassKind, PassLayout, PolicyWithValues
from rlhf_lab.training.engines.tensors import TensorsBackend, clipped_step, fill, local
from rlhf_lab.training.optim import Optim
from rlhf_lab.types.data import PolicyOutput


class FSDPBackend(TensorsBackend):
    """See ParameterBackend."""

    sharding = Sharding.tensors

    def __init__(
        self,
        networks: PolicyWithValues,
        optim: Optim,
        options: FSDPOptions,
        device: torch.device,
        processes: Processes,
        use: ReferenceUse = ReferenceUse.frozen,
    ) -> None:
        """networks: whole in rank 0, which gives every rank its parts and keeps nothing; the
        parameters of other ranks are not read, and may be on the meta device."""
        require_group()
        self.device = device
        self._size = processes.size
        self._optim = optim
        mesh = init_device_mesh(device.type, (processes.size,))
        dtype = getattr(torch, options.dtype.value)
        self._reference_networks = None
        if use is not ReferenceUse.none:
            # One that follows the policy by small steps would lose them in half precision.
            own = dtype if use is ReferenceUse.frozen else torch.float32
            reference = networks.reference(meta_model(networks.policy, own))
            self._reference_networks = sharded(reference, mesh, dtype)
            load(self._reference_networks, networks, device, processes)
        self._networks = sharded(meta_model(networks, torch.float32), mesh, dtype)
        load(self._networks, networks, device, processes)
        release_weights(networks)
        super().__init__(self._networks, self._reference_networks, optim)

    def output(self, token_rows: TokenRows, kind: PassKind, layout: PassLayout) -> PolicyOutput:
        return PolicyOutput(*self._networks(token_rows, kind, layout))

    def reference(self, token_rows: TokenRows, layout: PassLayout) -> PolicyOutput:
        reference: Any = self._reference_networks
        return PolicyOutput(*reference(token_rows, PassKind.policy, layout))

    @contextmanager
    def no_gradients(self) -> Iterator[None]:
        with torch.no_grad():
            yield
        # After a pass without backward, the root keeps whole tensors, which would be stale once the
        # shards have changed.
        reshard(self._networks)
        if self._reference_networks is not None:
            reshard(self._reference_networks)

    @contextmanager
    def with_weights(self, weights: Iterable[tuple[str, Tensor]]) -> Iterator[None]:
        before = {}
        for name, tensor in weights:
            before[name] = local(self.trained[name].detach()).clone()
            fill(self.trained[name], tensor)
        try:
            yield
        finally:
            with torch.no_grad():
                for name, part in before.items():
                    local(self.trained[name]).copy_(part)

    def begin(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)

    def backward(self, loss: Tensor, is_last: bool) -> None:
        # Gradients are averaged over the processes, and the token weights are of the whole update.
        (loss * self._size).backward()  # type: ignore[no-untyped-call]

    def step(self, learning_rate: float) -> dict[str, float]:
        return clipped_step(self._networks, self, self._optim, learning_rate)


def sharded(networks: PolicyWithValues, mesh: DeviceMesh, dtype: torch.dtype) -> PolicyWithValues:
    """Shard each layer by itself and the rest together, so that a pass gathers one layer at a
    time."""
    precision = MixedPrecisionPolicy(
        param_dtype=dtype, reduce_dtype=torch.float32, cast_forward_inputs=False
    )
    for layer in layers(networks):
        fully_shard(layer, mesh=mesh, mp_policy=precision)
    fully_shard(networks, mesh=mesh, mp_policy=precision, reshard_after_forward=False)
    return networks


def load(
    networks: PolicyWithValues,
    source: PolicyWithValues,
    device: torch.device,
    processes: Processes,
) -> None:
    """Fill sharded parameters on the meta device with rank 0's whole ones, one tensor at a time. No
    rank has more than one whole tensor on its device, and no other rank than 0 any on its host."""
    buffers = {name: buffer.clone() for name, buffer in networks.named_buffers()}
    networks.to_empty(device=device)
    for name, buffer in networks.named_buffers():
        buffer.copy_(buffers[name])
    wanted = networks.state_dict().keys()
    state = source.state_dict() if processes.is_main else {}
    set_model_state_dict(
        networks,
        {name: tensor for name, tensor in state.items() if name in wanted},
        options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True),
    )


def layers(module: torch.nn.Module) -> Iterator[torch.nn.Module]:
    """The elements of the outermost lists of modules: the layers of transformers."""
    for child in module.children():
        if isinstance(child, torch.nn.ModuleList):
            yield from child
        else:
            yield from layers(child)


def reshard(networks: PolicyWithValues) -> None:
    """Free the whole tensors of the root."""
    if isinstance(networks, FSDPModule):
        networks.reshard()

"""Where ZeRO's stages store tensors: in flat buffers, or in partitions of each parameter; so for
policy, AdamW's state and the frozen reference.

All processes call `read` and `write` together. deepspeed is imported where it is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from rlhf_lab.training.engines.parameter_backend import WEIGHT
from rlhf_lab.training.engines.tensors import step_device

Parameters = dict[str, torch.nn.Parameter]


class ZeroStorage:
    """The optimizer works on shards, of which DeepSpeed gathers whole tensors: those of a parameter
    are read and written here, and this process's partition of it. Every process has all weights,
    as in stage 2, unless a subclass partitions them."""

    def __init__(self, engine: Any) -> None:
        self._optimizer = engine.optimizer

    def _buffers(self) -> list[Tensor]:
        """The flat tensors that the optimizer updates in this process."""
        raise NotImplementedError

    def optimizer_parts(self) -> Iterator[str]:
        """Names of the optimizer's tensors, none before the first step."""
        state = self._optimizer.optimizer.state
        yield from dict.fromkeys(part for entry in state.values() for part in entry)

    def read(self, parameter: Any, part: str) -> Tensor:
        from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state

        if part == WEIGHT:
            return cloned(safe_get_full_fp32_param(parameter))
        if part == "step":
            return cloned(self._optimizer.optimizer.state[self._buffers()[0]][part])
        return cloned(safe_get_full_optimizer_state(parameter, part))

    def write(self, parameter: Any, part: str, value: Tensor) -> None:
        raise NotImplementedError

    def flat(self, part: str, trained: Parameters) -> dict[str, Tensor]:
        """See ParameterBackend."""
        raise NotImplementedError

    def places(self, trained: Parameters) -> dict[str, tuple[str, int]]:
        """See ParameterBackend."""
        raise NotImplementedError

    def part(self, parameter: Any) -> Tensor:
        """This process's partition of the weights that forward passes use, to change in place."""
        weights: Tensor = parameter.detach()
        return weights

    def own(self, value: Tensor, like: Tensor) -> Tensor:
        """This process's partition of a whole tensor."""
        return value

    def settle(self) -> None:
        """Free whole copies, which would be stale once the partitions change."""


class FlatBufferStorage(ZeroStorage):
    """Stage 2: the optimizer has a shard of one flat float32 copy of the weights."""

    def _buffers(self) -> list[Tensor]:
        return [p for group in self._optimizer.optimizer.param_groups for p in group["params"]]

    def flat(self, part: str, trained: Parameters) -> dict[str, Tensor]:
        state = self._optimizer.optimizer.state
        return {
            f"group{number}": buffer.detach() if part == WEIGHT else state[buffer][part]
            for number, buffer in enumerate(self._buffers())
        }

    def places(self, trained: Parameters) -> dict[str, tuple[str, int]]:
        names = {id(parameter): name for name, parameter in trained.items()}
        groups = zip(
            self._optimizer.round_robin_bit16_groups,
            self._optimizer.round_robin_bit16_offsets,
            strict=True,
        )
        return {
            names[id(parameter)]: (f"group{number}", offset)
            for number, (parameters, offsets) in enumerate(groups)
            for parameter, offset in zip(parameters, offsets, strict=True)
        }

    def write(self, parameter: Any, part: str, value: Tensor) -> None:
        from deepspeed.utils import safe_set_full_fp32_param, safe_set_full_optimizer_state

        source = value.to(parameter.device, torch.float32)
        if part == WEIGHT:
            parameter.data.copy_(source)
            safe_set_full_fp32_param(parameter, source)
            return
        is_new = make_state(self._optimizer.optimizer, self._buffers(), part, value)
        if part != "step":
            if is_new:
                self._optimizer._hp_optimizer_states_linked = False
                self._optimizer._lazy_init_hp_params_optimizer_state()
            safe_set_full_optimizer_state(parameter, source, part)


class PartitionedStorage(ZeroStorage):
    """Stage 3: every process has an equal partition of each parameter, padded at the end."""

    def __init__(self, engine: Any, rank: int) -> None:
        super().__init__(engine)
        self._rank = rank

    def _buffers(self) -> list[Tensor]:
        return list(self._optimizer.fp32_partitioned_groups_flat)

    def flat(self, part: str, trained: Parameters) -> dict[str, Tensor]:
        from deepspeed.utils import safe_get_local_fp32_param, safe_get_local_optimizer_state

        if part == "step":
            count = self._optimizer.optimizer.state[self._buffers()[0]][part]
            return dict.fromkeys(trained, count)
        if part == WEIGHT:
            return {name: safe_get_local_fp32_param(p) for name, p in trained.items()}
        return {name: safe_get_local_optimizer_state(p, part) for name, p in trained.items()}

    def places(self, trained: Parameters) -> dict[str, tuple[str, int]]:
        return {name: (name, 0) for name in trained}

    def write(self, parameter: Any, part: str, value: Tensor) -> None:
        from deepspeed.utils import safe_set_local_fp32_param, safe_set_local_optimizer_state

        if part == WEIGHT:
            own = self.part(parameter)
            own.copy_(self.own(value, own))
            safe_set_local_fp32_param(parameter, self.own(value, own).float())
            return
        make_state(self._optimizer.optimizer, self._buffers(), part, value)
        if part != "step":
            own = self.own(value, self.part(parameter)).float()
            safe_set_local_optimizer_state(parameter, own, part)

    def own(self, value: Tensor, like: Tensor) -> Tensor:
        """This process's partition of a whole tensor, padded with zeros."""
        size = like.numel()
        own = value.flatten()[self._rank * size : (self._rank + 1) * size]
        own = own.to(like.device)
        return torch.cat([own, own.new_zeros(size - own.numel())])

    def part(self, parameter: Any) -> Tensor:
        partition: Tensor = parameter.ds_tensor.data
        return partition

    def settle(self) -> None:
        self._optimizer.empty_partition_cache()


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


def cloned(tensor: Tensor) -> Tensor:
    """A copy on the host."""
    return tensor.detach().cpu().clone()


class ReplicatedReference:
    """A frozen copy in every process."""

    def __init__(self, parameters: Parameters) -> None:
        self._parameters = parameters

    def read(self, name: str) -> Tensor:
        return cloned(self._parameters[name])

    def write(self, name: str, value: Tensor) -> None:
        self._parameters[name].data.copy_(value)

    def part(self, name: str) -> Tensor:
        return self._parameters[name].data

    def settle(self) -> None:
        pass

    def names(self) -> list[str]:
        return list(self._parameters)


class PartitionedReference:
    """A frozen copy that is partitioned as stage 3 partitions the policy."""

    def __init__(self, engine: Any, parameters: Parameters, rank: int) -> None:
        self._storage = PartitionedStorage(engine, rank)
        self._parameters = parameters

    def read(self, name: str) -> Tensor:
        import deepspeed

        with deepspeed.zero.GatheredParameters([self._parameters[name]]):
            return cloned(self._parameters[name].data)

    def write(self, name: str, value: Tensor) -> None:
        own = self.part(name)
        own.copy_(self._storage.own(value, own))

    def part(self, name: str) -> Tensor:
        return self._storage.part(self._parameters[name])

    def settle(self) -> None:
        self._storage.settle()

    def names(self) -> list[str]:
        return list(self._parameters)


Reference = ReplicatedReference | PartitionedReference

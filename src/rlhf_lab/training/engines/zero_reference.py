"""The frozen reference under DeepSpeed: replicated, or partitioned where the policy is."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rlhf_lab.training.engines.zero import PartitionedStorage
from rlhf_lab.training.engines.zero_state import cloned

Parameters = dict[str, torch.nn.Parameter]


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

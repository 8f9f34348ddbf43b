"""A version of the policy, as vLLM's senders of weights read it."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from vllm.distributed.weight_transfer import ParamMeta, WeightSource

from rlhf_lab.types.data import Weights


class VersionSource(WeightSource):  # type: ignore[misc]
    """Yields the tensors of `weights` on this process's GPU, one at a time."""

    weights: Weights

    def metadata(self) -> list[ParamMeta]:
        return [
            ParamMeta(name, tensor.dtype, tuple(tensor.shape))
            for name, tensor in self.weights.state.items()
        ]

    def __iter__(self) -> Iterator[tuple[str, torch.Tensor]]:
        for name, tensor in self.weights.state.items():
            yield name, tensor.detach().to("cuda")

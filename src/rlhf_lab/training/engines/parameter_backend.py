"""The interface of a parameter backend: parameters whole in one process, or sharded over many."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from enum import StrEnum
from typing import Protocol

import torch
from torch import Tensor

from rlhf_lab.models.forward import TokenRows
from rlhf_lab.training.engines.policy_with_values import PassKind, PassLayout
from rlhf_lab.types.data import Adapters, PolicyOutput, Weights

# Parts of a parameter that `read` and `write` know besides those of the optimizer.
WEIGHT = "weight"
REFERENCE = "reference"


class ReferenceUse(StrEnum):
    """What a run does with the reference: nothing, it stays as it is, or it follows the policy."""

    none = "none"
    frozen = "frozen"
    moves = "moves"


class Sharding(StrEnum):
    """How each process has its part: of nothing, of every tensor (DTensors), or of flat buffers in
    which parameters lie one behind the other."""

    none = "none"
    tensors = "tensors"
    buffers = "buffers"


class ParameterBackend(Protocol):
    """Policy, value model, reference and optimizer. Several processes make the same calls, in the
    same order. Backends extend this class, whose last six methods are optional.

    read, write: one whole tensor on the host, in the precision that is trained. part: WEIGHT,
    REFERENCE, or a tensor of the optimizer's state.
    """

    device: torch.device
    sharding: Sharding = Sharding.none

    def shapes(self) -> dict[str, torch.Size]:
        """Shapes of everything that is trained, by name."""
        ...

    def output(self, token_rows: TokenRows, kind: PassKind, layout: PassLayout) -> PolicyOutput: ...

    def reference(self, token_rows: TokenRows, layout: PassLayout) -> PolicyOutput: ...

    def no_gradients(self) -> AbstractContextManager[None]:
        """A context for passes without gradients."""
        ...

    def with_weights(self, weights: Iterable[tuple[str, Tensor]]) -> AbstractContextManager[None]:
        """Inside, `output` uses these policy weights; afterwards its own again, bit for bit."""
        ...

    def begin(self) -> None:
        """Zero the gradients."""
        ...

    def backward(self, loss: Tensor, is_last: bool) -> None:
        """Accumulate gradients; the last call also sums them over the processes."""
        ...

    def step(self, learning_rate: float) -> dict[str, float]:
        """Clip, make an optimizer step, return the gradient norms, and the `gradient_cosine` if
        that is measured. No step is made if a norm is not finite, except by DeepSpeed, which
        computes the norm within the step."""
        ...

    def is_finite(self) -> bool:
        """Whether this process's part of the weights is finite."""
        ...

    def move_reference(self, decay: float) -> None: ...

    def optimizer_parts(self) -> Iterator[str]:
        """Names of the optimizer's tensors of a parameter, none before the first step."""
        ...

    def weight(self, name: str, dtype: torch.dtype) -> Tensor:
        """A whole weight of the policy in this type, on the backend's device or the host; it may
        share the parameter's memory."""
        ...

    def read(self, name: str, part: str) -> Tensor: ...

    def write(self, name: str, part: str, value: Tensor) -> None: ...

    def gradient_norm(self) -> float:
        """The norm of all gradients of the policy together, after a backward pass."""
        raise TypeError(f"{type(self).__name__} has no gradients of single responses")

    def adapters(self) -> Adapters | None:
        """A copy of the adapters on the host; None where all weights are trained."""
        return None

    def fill(self, weights: Weights) -> None:
        """Copy the adapters of a version into those that are trained. Raises ValueError if these
        are others."""
        raise TypeError(f"{type(self).__name__} trains no adapters")

    def shard(self, name: str, part: str) -> Tensor:
        """With Sharding.tensors: what `read` gathers, as a DTensor with this process's shard; a
        tensor that is not sharded is whole. It shares the memory of the parameter or state."""
        raise TypeError(f"{type(self).__name__} has no DTensors")

    def flat(self, part: str) -> Mapping[str, Tensor]:
        """With Sharding.buffers: this process's part of every buffer, 1-D, by the buffer's name; a
        scalar is whole. It shares the memory of the optimizer."""
        raise TypeError(f"{type(self).__name__} has no flat buffers")

    def places(self) -> Mapping[str, tuple[str, int]]:
        """The buffer of each parameter, by name, and the parameter's first element in it."""
        raise TypeError(f"{type(self).__name__} has no flat buffers")

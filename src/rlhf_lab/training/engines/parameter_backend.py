"""What an engine needs of whoever holds the parameters, in one process or in parts in many."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Protocol

import torch
from torch import Tensor

from rlhf_lab.models.forward import Texts
from rlhf_lab.training.engines.policy_with_values import PassKind, PassLayout
from rlhf_lab.types.data import PolicyOutput

# Parts of a parameter that `read` and `write` know besides those of the optimizer.
WEIGHT = "weight"
REFERENCE = "reference"


class ParameterBackend(Protocol):
    """Policy, value model, reference and optimizer. Where there are several processes, all of them
    make the same calls in the same order.

    `read` gives a whole tensor on the host, in the precision that is trained; `write` takes one.
    """

    @property
    def device(self) -> torch.device: ...

    def shapes(self) -> dict[str, torch.Size]:
        """Everything that is trained, by name."""
        ...

    def output(self, texts: Texts, kind: PassKind, layout: PassLayout) -> PolicyOutput: ...

    def reference(self, texts: Texts, layout: PassLayout) -> PolicyOutput: ...

    def no_gradients(self) -> AbstractContextManager[None]:
        """Around passes that no gradient is asked of."""
        ...

    def with_weights(self, weights: Iterable[tuple[str, Tensor]]) -> AbstractContextManager[None]:
        """Inside, `output` reads these weights of the policy; afterwards its own, bit for bit."""
        ...

    def begin(self) -> None:
        """Forget the gradients."""
        ...

    def backward(self, loss: Tensor, is_last: bool) -> None:
        """Add a gradient; the gradients of all processes are summed by the last one."""
        ...

    def step(self, learning_rate: float) -> dict[str, float]:
        """Clip, apply, and tell the norms. Nothing is applied if a norm is not finite, except by
        DeepSpeed, which has no way to ask before."""
        ...

    def is_finite(self) -> bool:
        """Whether this process's part of the weights is."""
        ...

    def move_reference(self, decay: float) -> None: ...

    def optimizer_parts(self) -> Iterator[str]:
        """Names of the optimizer's tensors of a parameter, none before the first step."""
        ...

    def read(self, name: str, part: str) -> Tensor: ...

    def write(self, name: str, part: str, value: Tensor) -> None: ...

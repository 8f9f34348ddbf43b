"""`engine=value_clipped`: gradients are clipped number by number before they are by their norm."""

from __future__ import annotations

from dataclasses import dataclass

from torch.nn.utils import clip_grad_value_

from rlhf_lab.training.engines.options import EngineContext, SingleEngineOptions
from rlhf_lab.training.engines.single import SingleBackend
from rlhf_lab.types import limits


@dataclass(frozen=True)
class ValueClipped(SingleEngineOptions):
    """One process holds everything, and no gradient of a single parameter is large."""

    name: str = limits.name("value_clipped")
    largest: float = limits.number(
        0.01, above=0, max=1e6, about="Largest absolute value of a parameter's gradient."
    )

    def build(self, context: EngineContext) -> ValueClippedBackend:
        backend = ValueClippedBackend.of(self, context)
        backend.largest = self.largest
        return backend


class ValueClippedBackend(SingleBackend):
    """The methods of `ParameterBackend` that differ: here the step alone."""

    largest: float

    def step(self, learning_rate: float) -> dict[str, float]:
        clip_grad_value_(self.networks.parameters(), self.largest)
        return super().step(learning_rate)

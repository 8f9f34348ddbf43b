"""The base class of algorithms: defaults for what most of them do not need."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from rlhf_lab.types import limits
from rlhf_lab.types.data import Metrics, Needs


class AlgorithmOptions(limits.OptionGroup, key="algo"):
    """An algorithm that is the same in every round and reads samples and rewards alone. Algorithms
    add `name`, `reduction`, `objective`, `credit` and `loss` (see types.protocols.Algorithm)."""

    @property
    def needs(self) -> Needs:
        return Needs()

    def at_round(self, round_: int, num_rounds: int) -> Self:
        return self

    def state(self) -> Mapping[str, float]:
        return {}

    def with_state(self, state: Mapping[str, float]) -> Self:
        return self

    def adapted(self, metrics: Metrics, num_samples: int) -> Self:
        return self

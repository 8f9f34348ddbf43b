"""An engine over several processes: the lead says what is to be done, and all of them do it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from rlhf_lab.training.engines.distributed import Processes, together
from rlhf_lab.types.data import Batch, UpdateResult, Weights
from rlhf_lab.types.protocols import Algorithm, Correction, Engine

STOP = "stop"


@dataclass(frozen=True)
class BroadcastEngine:
    """The lead's engine. Of weights and states only their place crosses as a word: the tensors
    follow one by one, where they are needed."""

    engine: Engine
    processes: Processes

    def _all(self, name: str, said: tuple[Any, ...], own: tuple[Any, ...]) -> Any:
        with together(self.processes):
            self.processes.broadcast_object((name, said))
            return getattr(self.engine, name)(*own)

    def reference_logp(self, batch: Batch) -> Tensor:
        found: Tensor = self._all("reference_logp", (batch,), (batch,))
        return found

    def logp(self, batch: Batch, weights: Weights) -> Tensor:
        said = (batch, Weights(weights.version, {}))
        found: Tensor = self._all("logp", said, (batch, weights))
        return found

    def values(self, batch: Batch) -> Tensor:
        found: Tensor = self._all("values", (batch,), (batch,))
        return found

    def update(
        self, batch: Batch, algo: Algorithm, correction: Correction, learning_rate: float
    ) -> UpdateResult:
        given = (batch, algo, correction, learning_rate)
        found: UpdateResult = self._all("update", given, given)
        return found

    def move_reference(self, decay: float) -> None:
        self._all("move_reference", (decay,), (decay,))

    def weights(self, version: int) -> Weights:
        found: Weights = self._all("weights", (version,), (version,))
        return found

    def state(self) -> dict[str, Tensor]:
        found: dict[str, Tensor] = self._all("state", (), ())
        return found

    def restore(self, weights: Weights, state: Mapping[str, Tensor]) -> None:
        self._all("restore", (Weights(weights.version, {}), {}), (weights, state))

    def peak_memory(self) -> Mapping[str, int]:
        found: Mapping[str, int] = self._all("peak_memory", (), ())
        return found


def follow(engine: Engine, processes: Processes) -> None:
    """Take part in whatever the lead says, until it says stop."""
    while (word := processes.broadcast_object(None)) != STOP:
        name, said = word
        getattr(engine, name)(*said)

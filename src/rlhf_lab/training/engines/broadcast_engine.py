"""An engine over several processes: rank 0 broadcasts each call, and every rank makes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from rlhf_lab.training.engines.distributed import Processes, together
from rlhf_lab.training.engines.engine import TrainingEngine
from rlhf_lab.types.data import Batch, UpdateResult, Weights
from rlhf_lab.types.protocols import Correction, Engine, Loss, Shards, ShardWriter

# Ends the calls of one engine; other work may follow.
DONE = "done"
# Ends the worker ranks.
STOP = "stop"


@dataclass(frozen=True)
class BroadcastEngine:
    """The engine of rank 0. Calls are broadcast without the tensors of weights and states; the
    engines broadcast those one by one where they need them."""

    engine: Engine
    processes: Processes

    def _call(self, name: str, sent: tuple[Any, ...], own: tuple[Any, ...]) -> Any:
        """Call a method with `own` here, and with `sent` on the other ranks."""
        with together(self.processes):
            self.processes.broadcast_call((name, sent))
            return getattr(self.engine, name)(*own)

    def reference_logp(self, batch: Batch) -> Tensor:
        result: Tensor = self._call("reference_logp", (batch,), (batch,))
        return result

    def logp(self, batch: Batch, weights: Weights) -> Tensor:
        sent = (batch, Weights(weights.version, {}))
        result: Tensor = self._call("logp", sent, (batch, weights))
        return result

    def entropy(self, batch: Batch, weights: Weights) -> Tensor:
        sent = (batch, Weights(weights.version, {}))
        result: Tensor = self._call("entropy", sent, (batch, weights))
        return result

    def values(self, batch: Batch) -> Tensor:
        result: Tensor = self._call("values", (batch,), (batch,))
        return result

    def ratio_gradients(self, batch: Batch) -> Tensor:
        result: Tensor = self._call("ratio_gradients", (batch,), (batch,))
        return result

    def update(
        self, batch: Batch, algo: Loss, correction: Correction, learning_rate: float
    ) -> UpdateResult:
        arguments = (batch, algo, correction, learning_rate)
        result: UpdateResult = self._call("update", arguments, arguments)
        return result

    def move_reference(self, decay: float) -> None:
        self._call("move_reference", (decay,), (decay,))

    def weights(self, version: int) -> Weights:
        result: Weights = self._call("weights", (version,), (version,))
        return result

    def whole(self, weights: Weights) -> Weights:
        """Adapters, which alone are merged, are trained in one process."""
        return self.engine.whole(weights)

    def state(self) -> dict[str, Tensor]:
        result: dict[str, Tensor] = self._call("state", (), ())
        return result

    def sharded(self) -> ShardWriter | None:
        return self if self.engine.sharded() else None

    def write_shards(self, folder: Path) -> Shards | None:
        result: Shards | None = self._call("write_shards", (folder,), (folder,))
        return result

    def restore(self, weights: Weights, state: Mapping[str, Tensor]) -> None:
        self._call("restore", (Weights(weights.version, {}), {}), (weights, state))

    def peak_memory(self) -> Mapping[str, int]:
        result: Mapping[str, int] = self._call("peak_memory", (), ())
        return result


def follow(engine: Any, processes: Processes) -> str:
    """Make every call that rank 0 broadcasts, until it broadcasts DONE or STOP, which is
    returned."""
    while (call := processes.broadcast_call(None)) not in (DONE, STOP):
        name, arguments = call
        getattr(engine, name)(*arguments)
    if isinstance(engine, TrainingEngine):
        # Rank 0 waits for the shards of all ranks.
        engine.finish_shards()
    return str(call)

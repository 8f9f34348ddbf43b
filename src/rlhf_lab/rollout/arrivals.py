"""In which order a round takes its chunks. The mode's executor decides it where that is not the
order of their prompts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Protocol

from rlhf_lab.rollout.chunk_states import PendingChunk, QueuedChunk
from rlhf_lab.types.data import Metrics
from rlhf_lab.types.rollouts import Chunk, Rollout


class Arrivals(Protocol):
    """Which chunk a round takes next, of those that are admitted and not taken."""

    def next(self, pending: Sequence[PendingChunk], version: int, missing: int) -> PendingChunk:
        """The chunk to take next. pending: oldest first. missing: chunks that the round of this
        version still needs."""
        ...

    def taken(self, chosen: Sequence[Rollout]) -> None:
        """Called with the rollouts of a round, before it is trained on."""
        ...

    def measures(self) -> Metrics:
        """Sums over the run until the newest weights were filled in."""
        ...

    def row(self, number: int) -> Mapping[str, Any]:
        """What the schedule records of a chunk besides its versions."""
        ...

    def state(self) -> Mapping[str, Any]:
        """What a checkpoint stores, for `restore`."""
        ...

    def written(self, pending: PendingChunk) -> Rollout | None:
        """The rollout of a pending chunk that a checkpoint stores."""
        ...

    def restore(
        self,
        state: Mapping[str, Any],
        queued: Sequence[QueuedChunk],
        chunk: Callable[[int], Chunk],
    ) -> None:
        """Continue from a checkpoint. Called once, before `restored`. chunk: by its number."""
        ...

    def restored(self, chunk: QueuedChunk) -> Future[Rollout] | None:
        """The future of a chunk of a checkpoint; None if it must be submitted again."""
        ...


class OrderOfPrompts:
    """The oldest prompts first, whenever they are finished."""

    def next(self, pending: Sequence[PendingChunk], version: int, missing: int) -> PendingChunk:
        return pending[0]

    def taken(self, chosen: Sequence[Rollout]) -> None:
        """Nothing depends on it."""

    def measures(self) -> Metrics:
        return {}

    def row(self, number: int) -> Mapping[str, Any]:
        return {}

    def state(self) -> Mapping[str, Any]:
        return {}

    def written(self, pending: PendingChunk) -> Rollout | None:
        is_done = pending.future.done() and pending.future.exception() is None
        return pending.future.result() if is_done else None

    def restore(
        self,
        state: Mapping[str, Any],
        queued: Sequence[QueuedChunk],
        chunk: Callable[[int], Chunk],
    ) -> None:
        """Nothing was stored."""

    def restored(self, chunk: QueuedChunk) -> Future[Rollout] | None:
        if chunk.rollout is None:
            return None
        future: Future[Rollout] = Future()
        future.set_result(chunk.rollout)
        return future

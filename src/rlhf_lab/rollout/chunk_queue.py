"""The queue of all modes in which a chunk belongs to one round from the beginning.

Each chunk's lag is checked against what the mode promises.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Protocol

from rlhf_lab.rollout.budget import StalenessBudget
from rlhf_lab.rollout.chunk_runner import ChunkRunner
from rlhf_lab.rollout.chunk_states import PendingChunk, Queued, QueuedChunk, RoundRollouts
from rlhf_lab.rollout.feeds import RecordedWeights, Segments
from rlhf_lab.rollout.mode import Mode, WeightPolicy, WhenStale
from rlhf_lab.rollout.partial_rollout import PartialRollout, segments_of
from rlhf_lab.types.data import Metrics, Weights
from rlhf_lab.types.protocols import WeightFeed
from rlhf_lab.types.rollouts import Chunk, Rollout
from rlhf_lab.types.samples import lag_in_rounds


class TokensInFlight:
    """Counts by chunk. `add` is called in the thread that finished a rollout."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._in_flight: dict[tuple[int, int], int] = {}
        self._generated = 0

    def add(self, rollout: Rollout) -> None:
        """Count a rollout, or a segment of one, as generated and not taken."""
        with self._lock:
            self._generated += rollout.response_tokens
            key = (rollout.chunk.round, rollout.chunk.index)
            self._in_flight[key] = self._in_flight.get(key, 0) + rollout.response_tokens

    def take(self, rollout: Rollout) -> None:
        """A round has taken a rollout, or passed it over as too old."""
        with self._lock:
            del self._in_flight[rollout.chunk.round, rollout.chunk.index]

    def restore(self, taken: int) -> None:
        """Continue from the tokens that rounds before a checkpoint have taken."""
        self._generated = taken

    @property
    def totals(self) -> tuple[int, int]:
        """Tokens generated so far, and those among them that have not been taken yet."""
        with self._lock:
            return self._generated, sum(self._in_flight.values())


def is_too_old(mode: Mode, rollout: Rollout, version: int) -> bool:
    """Whether the round of this version passes over a rollout as too old."""
    is_older = lag_in_rounds(version, rollout.version) > mode.max_staleness
    return is_older and mode.when_stale is WhenStale.drop


def check_lag(
    mode: Mode, budget: StalenessBudget, pending: PendingChunk, rollout: Rollout, version: int
) -> None:
    """Raise RuntimeError if the chunk's lag is not exactly what the mode promises."""
    lag = lag_in_rounds(version, rollout.version)
    allowed = range(mode.max_staleness + 1)
    is_timed = mode.uses_latest_weights or mode.is_replay
    # Chunks of a virtual cluster that a fork takes over may still wait, or be lost and begin anew.
    is_inherited = budget.is_inherited(pending.number) and not mode.is_virtual
    if is_inherited or not is_timed:
        expected = version - budget.version_of(pending.number)
        allowed = range(expected, expected + 1)
        if rollout.chunk.round != version and not is_timed:
            allowed = range(0)
    if not follows_its_segments(mode, pending, rollout):
        allowed = range(0)
    if lag not in allowed and not is_too_old(mode, rollout, version):
        raise RuntimeError(
            f"off-policy accounting broken: round {version} got chunk {rollout.chunk.index} "
            f"of round {rollout.chunk.round}, written by version {rollout.version}; the lag "
            f"must be in {list(allowed)}"
        )


def follows_its_segments(mode: Mode, pending: PendingChunk, rollout: Rollout) -> bool:
    """Whether the expected versions wrote the segments of a partial rollout."""
    steps, count = mode.segment_steps, len(rollout.segments)
    if not steps:
        return True
    promised = segments_of(rollout.chunk.round, pending.version, steps, count)
    return list(rollout.segments) == promised and rollout.is_finished


class ChunkOrder(Protocol):
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


class ChunkQueue:
    """Submits what the budget admits and hands out what is due; see `RoundQueue`.

    recorded: the schedule to repeat, by chunk number (mode=recorded). chunk_order: the order in
    which rounds take chunks, where it is not that of the prompts.
    """

    def __init__(
        self,
        runner: ChunkRunner,
        budget: StalenessBudget,
        chunks_per_round: int,
        mode: Mode,
        recorded: Mapping[int, Segments] | None = None,
        chunk_order: ChunkOrder | None = None,
    ) -> None:
        self._runner = runner
        self._executor = runner.executor
        self._budget = budget
        self._chunks_per_round = chunks_per_round
        self._mode = mode
        self._recorded = recorded
        self._chunk_order = chunk_order or OrderOfPrompts()
        self._pending: list[PendingChunk] = []
        self._tokens = TokensInFlight()
        self._executor.on_done = self._tokens.add

    def tokens(self) -> tuple[int, int]:
        """Response tokens generated so far, and those among them that have not been taken yet."""
        return self._tokens.totals

    def measures(self) -> Metrics:
        """What the order of arrival counted so far."""
        return self._chunk_order.measures()

    def fill(self, weights: Weights) -> None:
        """Submit every chunk that may be generated now that these weights exist."""
        for pending in self._pending:
            if pending.partial is not None:
                pending.partial.publish(weights)
        numbers = self._budget.admit(weights.version)
        admitted = [(number, self._runner.chunk(number)) for number in numbers]
        if self._writes_whole_chunks:
            self._executor.prefetch(weights, [chunk for _, chunk in admitted[1:]])
        for number, chunk in admitted:
            self._submit(number, chunk, weights)

    @property
    def _writes_whole_chunks(self) -> bool:
        """Whether the weights of a chunk's admission write all of it."""
        mode = self._mode
        is_fixed = self._recorded is None and not mode.uses_latest_weights
        return is_fixed and not mode.segment_steps

    def _submit(self, number: int, chunk: Chunk, weights: Weights) -> PendingChunk:
        partial = None
        if steps := self._mode.segment_steps:
            partial = PartialRollout(chunk, weights.version, steps, self._executor.submit)
            partial.publish(weights)
            future = partial.future
        else:
            future = self._executor.submit(self._feed(number, weights), chunk)
        pending = PendingChunk(number, weights.version, future, partial=partial)
        self._pending.append(pending)
        # With random lags, a chunk may be admitted after younger ones and yet be due before them.
        self._pending.sort(key=lambda pending: pending.number)
        return pending

    def _feed(self, number: int, weights: Weights) -> WeightFeed:
        if self._recorded is not None:
            return RecordedWeights(self._recorded[number], self._runner.versions)
        if self._mode.uses_latest_weights:
            return self._executor.latest(self._mode.weights is WeightPolicy.latest_per_token)
        return weights

    def take(self, weights: Weights) -> RoundRollouts:
        """Wait for the rollouts of the next round, in their order of arrival, which is oldest first
        unless the mode has another; raises what a worker raised.

        Nothing is taken before all of them are finished: a run that stops meanwhile loses nothing.
        """
        chosen: list[Rollout] = []
        dropped: list[Rollout] = []
        taken: dict[int, PendingChunk] = {}
        while (missing := self._chunks_per_round - len(chosen)) > 0:
            left = [pending for pending in self._pending if pending.number not in taken]
            pending = self._chunk_order.next(left, weights.version, missing)
            rollout = self._runner.wait(pending.future)
            taken[pending.number] = pending
            if not is_too_old(self._mode, rollout, weights.version):
                chosen.append(rollout)
                continue
            dropped.append(rollout)
            if not pending.is_refunded:
                pending.is_refunded = True
                self._budget.refund()
                self.fill(weights)
        self._pending = [pending for pending in self._pending if pending.number not in taken]
        self._chunk_order.taken(chosen)
        return self._account(weights.version, list(taken.values()), chosen, dropped)

    def finish(self) -> None:
        """Wait until chunks on their way are written, but those that later versions continue."""
        for pending in self._pending:
            if pending.partial is None and not self._mode.is_virtual:
                self._runner.wait(pending.future)

    def _account(
        self,
        version: int,
        taken: Sequence[PendingChunk],
        chosen: list[Rollout],
        dropped: list[Rollout],
    ) -> RoundRollouts:
        dropped_ids = set(map(id, dropped))
        schedule = []
        for pending in taken:
            rollout = pending.future.result()
            check_lag(self._mode, self._budget, pending, rollout, version)
            for note in rollout.report.notes:
                self._runner.report(note)
            self._tokens.take(rollout)
            row: dict[str, Any] = {
                "round": version,
                "chunk": pending.number,
                "segments": [list(segment) for segment in rollout.segments],
                "dropped": id(rollout) in dropped_ids,
                "steps": rollout.steps,
            }
            if self._mode.segment_steps:
                row[self._mode.segment_unit] = self._mode.segment_steps
            schedule.append({**row, **self._chunk_order.row(pending.number)})
        return RoundRollouts(chosen, dropped, schedule)

    def state(self) -> tuple[dict[str, Any], list[Queued]]:
        """What a checkpoint stores: counters, and every chunk that is admitted but not taken."""
        queued: list[Queued] = []
        for pending in self._pending:
            rollout = self._chunk_order.written(pending)
            queued.append(
                QueuedChunk(pending.number, pending.version, pending.is_refunded, rollout)
            )
        generated, in_flight = self.tokens()
        counters = {"budget": self._budget.state(), "taken_tokens": generated - in_flight}
        if arrived := self._chunk_order.state():
            counters["chunk_order"] = arrived
        return counters, queued

    def restore(
        self,
        counters: Mapping[str, Any],
        queued: Sequence[Queued],
        weights: Mapping[int, Weights],
    ) -> None:
        """Continue from a checkpoint: finished chunks are kept, the others generated again."""
        self._budget.restore(counters["budget"])
        self._tokens.restore(counters["taken_tokens"])
        chunks = [chunk for chunk in queued if isinstance(chunk, QueuedChunk)]
        assert len(chunks) == len(queued), "a queue of groups in a run of chunks"
        self._chunk_order.restore(counters.get("chunk_order", {}), chunks, self._runner.chunk)
        self._runner.restore(weights)
        for chunk in chunks:
            future = self._chunk_order.restored(chunk)
            if future is None:
                whole = self._runner.chunk(chunk.number)
                pending = self._submit(chunk.number, whole, weights[chunk.version])
                # A partial rollout is repeated by the versions that have come since.
                for version in sorted(v for v in weights if v > chunk.version):
                    if pending.partial is not None:
                        pending.partial.publish(weights[version])
            else:
                pending = PendingChunk(chunk.number, chunk.version, future)
                self._pending.append(pending)
                if future.done():
                    self._tokens.add(future.result())
            pending.is_refunded = chunk.is_refunded

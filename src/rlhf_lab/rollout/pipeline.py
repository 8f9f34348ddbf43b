"""The pipeline between trainer and generators: submit what the budget admits, take what is due.

`fill(weights)` hands over every chunk that these weights may write; `take(weights)` waits for the
next round's chunks, oldest first. Each chunk's lag is checked against what the mode promises.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from types import TracebackType
from typing import Any

from rlhf_lab.rollout.budget import StalenessBudget
from rlhf_lab.rollout.chunk_states import PendingChunk, QueuedChunk, RoundRollouts
from rlhf_lab.rollout.executor import Executor
from rlhf_lab.rollout.feeds import RecordedWeights, Segments
from rlhf_lab.rollout.mode import Mode
from rlhf_lab.rollout.mode_choices import WeightPolicy, WhenStale
from rlhf_lab.rollout.partial_rollout import PartialRollout, segments_of
from rlhf_lab.rollout.prefetch import ChunkPrefetcher
from rlhf_lab.tasks.prompt_selection import EveryPrompt, PromptSelection
from rlhf_lab.types.data import Metrics, Weights
from rlhf_lab.types.errors import StopRequested
from rlhf_lab.types.protocols import WeightFeed
from rlhf_lab.types.rollouts import Chunk, Rollout
from rlhf_lab.types.samples import Group

POLL_SECONDS = 0.25


class Pipeline:
    """chunk(number): the run's n-th chunk, the same whenever it is called.

    recorded: the schedule to repeat, by chunk number (replay mode). should_stop: read while it
    waits. report: receives the generators' notes for the user. selection: what `chunk` takes its
    prompts from.
    """

    def __init__(
        self,
        executor: Executor,
        budget: StalenessBudget,
        chunk: Callable[[int], Chunk],
        chunks_per_round: int,
        mode: Mode,
        recorded: Mapping[int, Segments] | None = None,
        should_stop: Callable[[], bool] = lambda: False,
        report: Callable[[str], None] = lambda _: None,
        selection: PromptSelection | None = None,
    ) -> None:
        self._report = report
        self._executor = executor
        self._budget = budget
        self._selection = selection or EveryPrompt((), 0)
        ahead = 2 * chunks_per_round if self._selection.is_known_ahead else 0
        self._chunk = ChunkPrefetcher(chunk, ahead)
        self._chunks_per_round = chunks_per_round
        self._mode = mode
        self._recorded = recorded
        self._should_stop = should_stop
        self._pending: list[PendingChunk] = []
        self._history: dict[int, Weights] = {}
        self._lock = threading.Lock()
        self._tokens_in_flight: dict[tuple[int, int], int] = {}
        self._generated = 0
        executor.on_done = self._count

    def __enter__(self) -> Pipeline:
        self._executor.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._executor.close()
        self._chunk.close()

    @property
    def seconds_in_caller(self) -> float:
        """Generation and scoring done in the trainer's own time so far."""
        return self._executor.seconds_in_caller

    @property
    def restarts(self) -> int:
        """How often a generator process was restarted."""
        return self._executor.restarts

    def tokens(self) -> tuple[int, int]:
        """Response tokens generated so far, and those among them that have not been taken yet."""
        with self._lock:
            return self._generated, sum(self._tokens_in_flight.values())

    def _count(self, rollout: Rollout) -> None:
        with self._lock:
            self._generated += rollout.response_tokens
            key = (rollout.chunk.round, rollout.chunk.index)
            self._tokens_in_flight[key] = (
                self._tokens_in_flight.get(key, 0) + rollout.response_tokens
            )

    def weights_of(self, version: int) -> Weights:
        """A version that wrote samples of the present round."""
        return self._history[version]

    def fill(self, weights: Weights) -> None:
        """Submit every chunk that may be generated now that these weights exist."""
        self._history[weights.version] = weights
        # One more than samples still to come need: the gap probe reads the round just trained.
        oldest = weights.version - self._mode.max_lag - 1
        self._history = {v: w for v, w in self._history.items() if v >= oldest}
        if self._mode.uses_latest_weights:
            self._executor.publish(weights)
        for pending in self._pending:
            if pending.partial is not None:
                pending.partial.publish(weights)
        admitted = [(number, self._chunk(number)) for number in self._budget.admit(weights.version)]
        if self._writes_whole_chunks:
            self._executor.announce(weights, [chunk for _, chunk in admitted[1:]])
        for number, chunk in admitted:
            self._submit(number, chunk, weights)

    @property
    def _writes_whole_chunks(self) -> bool:
        """Whether the weights of a chunk's admission write all of it."""
        mode = self._mode
        is_fixed = self._recorded is None and not mode.uses_latest_weights
        return is_fixed and not mode.segment_tokens

    def _submit(self, number: int, chunk: Chunk, weights: Weights) -> PendingChunk:
        partial = None
        if self._mode.segment_tokens:
            tokens = self._mode.segment_tokens
            partial = PartialRollout(chunk, weights.version, tokens, self._executor.submit)
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
            return RecordedWeights(self._recorded[number], self._history)
        if self._mode.uses_latest_weights:
            return self._executor.latest(self._mode.weights is WeightPolicy.latest_per_token)
        return weights

    def take(self, weights: Weights) -> RoundRollouts:
        """Wait for the rollouts of the next round, oldest first; raises what a worker raised.

        Nothing is taken before all of them are finished: a run that stops meanwhile loses nothing.
        """
        self.fill(weights)
        chosen: list[Rollout] = []
        dropped: list[Rollout] = []
        count = 0
        while len(chosen) < self._chunks_per_round:
            pending = self._pending[count]
            rollout = self._wait(pending.future)
            count += 1
            if not self._is_too_old(rollout, weights.version):
                chosen.append(rollout)
                continue
            dropped.append(rollout)
            if not pending.is_refunded:
                pending.is_refunded = True
                self._budget.refund()
                self.fill(weights)
        taken, self._pending = self._pending[:count], self._pending[count:]
        return self._account(weights.version, taken, chosen, dropped)

    def observe(self, round_: int, groups: Sequence[Group]) -> Metrics:
        """Let later prompts follow from the results of a round, before its weights are filled in.
        Gives metrics of the selection."""
        return self._selection.observe(round_, groups)

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
            self._check(pending, rollout, version)
            for note in rollout.report.notes:
                self._report(note)
            with self._lock:
                del self._tokens_in_flight[rollout.chunk.round, rollout.chunk.index]
            row = {
                "round": version,
                "chunk": pending.number,
                "segments": [list(segment) for segment in rollout.segments],
                "dropped": id(rollout) in dropped_ids,
            }
            if self._mode.segment_tokens:
                row["segment_tokens"] = self._mode.segment_tokens
            schedule.append(row)
        return RoundRollouts(chosen, dropped, schedule)

    def _is_too_old(self, rollout: Rollout, version: int) -> bool:
        is_older = version - rollout.version > self._mode.max_staleness
        return is_older and self._mode.when_stale is WhenStale.drop

    def _check(self, pending: PendingChunk, rollout: Rollout, version: int) -> None:
        """Raise if the chunk's lag is not exactly what the mode promises."""
        lag = version - rollout.version
        allowed = range(self._mode.max_staleness + 1)
        if not (self._mode.uses_latest_weights or self._mode.is_replay):
            expected = version - self._budget.version_of(pending.number)
            allowed = range(expected, expected + 1)
            if rollout.chunk.round != version:
                allowed = range(0)
        if not self._follows_its_segments(pending, rollout):
            allowed = range(0)
        if lag not in allowed and not self._is_too_old(rollout, version):
            raise RuntimeError(
                f"off-policy accounting broken: round {version} got chunk {rollout.chunk.index} "
                f"of round {rollout.chunk.round}, written by version {rollout.version}; the lag "
                f"must be in {list(allowed)}"
            )

    def _follows_its_segments(self, pending: PendingChunk, rollout: Rollout) -> bool:
        """Whether the expected versions wrote the segments of a partial rollout."""
        tokens, count = self._mode.segment_tokens, len(rollout.segments)
        if not tokens:
            return True
        promised = segments_of(rollout.chunk.round, pending.version, tokens, count)
        return list(rollout.segments) == promised and rollout.is_finished

    def _wait(self, future: Future[Rollout]) -> Rollout:
        """Wait for one chunk; raises if a generator fails or the run is asked to stop meanwhile."""
        while True:
            try:
                return future.result(timeout=None if future.done() else POLL_SECONDS)
            except NotYet:
                if self._executor.failure is not None:
                    raise self._executor.failure from None
                if self._should_stop():
                    raise StopRequested from None

    def state(self) -> tuple[dict[str, Any], list[QueuedChunk]]:
        """What a checkpoint stores: counters, and every chunk that is admitted but not taken."""
        queued = []
        for pending in self._pending:
            is_done = pending.future.done() and pending.future.exception() is None
            rollout = pending.future.result() if is_done else None
            queued.append(
                QueuedChunk(pending.number, pending.version, pending.is_refunded, rollout)
            )
        generated, in_flight = self.tokens()
        counters: dict[str, Any] = {
            "budget": self._budget.state(),
            "taken_tokens": generated - in_flight,
        }
        if selected := self._selection.state():
            counters["prompts"] = selected
        return counters, queued

    def history(self) -> dict[int, Weights]:
        """Every version that may have written samples still to be taken."""
        oldest = max(self._history) - self._mode.max_lag
        return {version: w for version, w in self._history.items() if version >= oldest}

    def restore(
        self,
        counters: Mapping[str, Any],
        queued: Sequence[QueuedChunk],
        weights: Mapping[int, Weights],
    ) -> None:
        """Continue from a checkpoint: finished chunks are kept, the others generated again."""
        self.restore_prompts(counters)
        self._budget.restore(counters["budget"])
        self._generated = counters["taken_tokens"]
        self._history = dict(weights)
        if self._mode.uses_latest_weights:
            self._executor.publish(weights[max(weights)])
        for chunk in queued:
            if chunk.rollout is None:
                pending = self._submit(
                    chunk.number, self._chunk(chunk.number), weights[chunk.version]
                )
                # A partial rollout is repeated by the versions that have come since.
                for version in sorted(v for v in weights if v > chunk.version):
                    if pending.partial is not None:
                        pending.partial.publish(weights[version])
            else:
                future: Future[Rollout] = Future()
                future.set_result(chunk.rollout)
                pending = PendingChunk(chunk.number, chunk.version, future)
                self._pending.append(pending)
                self._count(chunk.rollout)
            pending.is_refunded = chunk.is_refunded

    def restore_prompts(self, counters: Mapping[str, Any]) -> None:
        """Take the selection of prompts from a checkpoint, whose chunks can then be read."""
        self._selection.restore(counters.get("prompts", {}))

    def chunk(self, number: int) -> Chunk:
        """The run's n-th chunk."""
        return self._chunk(number)

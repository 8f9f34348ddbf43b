"""The queue of all modes in which a chunk belongs to one round from the beginning.

Each chunk's lag is checked against what the mode promises.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlhf_lab.rollout.arrivals import Arrivals, OrderOfPrompts
from rlhf_lab.rollout.budget import StalenessBudget
from rlhf_lab.rollout.chunk_runner import ChunkRunner
from rlhf_lab.rollout.chunk_states import PendingChunk, Queued, QueuedChunk, RoundRollouts
from rlhf_lab.rollout.feeds import RecordedWeights, Segments
from rlhf_lab.rollout.lag_check import check_lag, is_too_old
from rlhf_lab.rollout.mode import Mode
from rlhf_lab.rollout.mode_choices import WeightPolicy
from rlhf_lab.rollout.partial_rollout import PartialRollout
from rlhf_lab.rollout.tokens_in_flight import TokensInFlight
from rlhf_lab.types.data import Metrics, Weights
from rlhf_lab.types.protocols import WeightFeed
from rlhf_lab.types.rollouts import Chunk, Rollout


class ChunkQueue:
    """Submits what the budget admits and hands out what is due; see `RoundQueue`.

    recorded: the schedule to repeat, by chunk number (replay mode). arrivals: the order in which
    rounds take chunks, where it is not that of the prompts.
    """

    def __init__(
        self,
        runner: ChunkRunner,
        budget: StalenessBudget,
        chunks_per_round: int,
        mode: Mode,
        recorded: Mapping[int, Segments] | None = None,
        arrivals: Arrivals | None = None,
    ) -> None:
        self._runner = runner
        self._executor = runner.executor
        self._budget = budget
        self._chunks_per_round = chunks_per_round
        self._mode = mode
        self._recorded = recorded
        self._arrivals = arrivals or OrderOfPrompts()
        self._pending: list[PendingChunk] = []
        self._tokens = TokensInFlight()
        self._executor.on_done = self._tokens.add

    def tokens(self) -> tuple[int, int]:
        """Response tokens generated so far, and those among them that have not been taken yet."""
        return self._tokens.totals

    def measures(self) -> Metrics:
        """What the order of arrival counted so far."""
        return self._arrivals.measures()

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
            pending = self._arrivals.next(left, weights.version, missing)
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
        self._arrivals.taken(chosen)
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
            schedule.append({**row, **self._arrivals.row(pending.number)})
        return RoundRollouts(chosen, dropped, schedule)

    def state(self) -> tuple[dict[str, Any], list[Queued]]:
        """What a checkpoint stores: counters, and every chunk that is admitted but not taken."""
        queued: list[Queued] = []
        for pending in self._pending:
            rollout = self._arrivals.written(pending)
            queued.append(
                QueuedChunk(pending.number, pending.version, pending.is_refunded, rollout)
            )
        generated, in_flight = self.tokens()
        counters = {"budget": self._budget.state(), "taken_tokens": generated - in_flight}
        if arrived := self._arrivals.state():
            counters["arrivals"] = arrived
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
        self._arrivals.restore(counters.get("arrivals", {}), chunks, self._runner.chunk)
        self._runner.restore(weights)
        for chunk in chunks:
            future = self._arrivals.restored(chunk)
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

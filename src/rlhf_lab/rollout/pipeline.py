"""The pipeline between trainer and generators: publish new weights, take the samples of a round.

`fill(weights)` hands over all that these weights may write; `take(weights)` waits for the samples
of the next round. Which samples these are is decided by a `RoundQueue`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Protocol

from rlhf_lab.rollout.chunk_runner import ChunkRunner
from rlhf_lab.rollout.chunk_states import Queued, RoundRollouts
from rlhf_lab.tasks.prompts import EveryPrompt, PromptSelection
from rlhf_lab.types.data import Metrics, Weights
from rlhf_lab.types.rollouts import Chunk
from rlhf_lab.types.samples import Group


class RoundQueue(Protocol):
    """Samples on their way to the rounds that train on them.

    fill: submit all that may be generated now that these weights exist. take: wait for the round of
    these weights; nothing is taken before all of it is there, and what a worker raised is raised.
    finish: wait until what is on its way is written, but what later versions continue.
    tokens: generated so far, and those among them that have not been taken. measures: what it has
    counted when the weights after a round are filled in: of that round, or sums over the run until
    then, which hold the round's training too. state, restore: of a checkpoint between two rounds.
    """

    def fill(self, weights: Weights) -> None: ...

    def take(self, weights: Weights) -> RoundRollouts: ...

    def finish(self) -> None: ...

    def tokens(self) -> tuple[int, int]: ...

    def measures(self) -> Metrics: ...

    def state(self) -> tuple[dict[str, Any], list[Queued]]: ...

    def restore(
        self,
        counters: Mapping[str, Any],
        queued: Sequence[Queued],
        weights: Mapping[int, Weights],
    ) -> None: ...


class Pipeline:
    """A queue with what runs its chunks. selection: what the runner's chunks take their prompts
    from."""

    def __init__(
        self, runner: ChunkRunner, queue: RoundQueue, selection: PromptSelection | None = None
    ) -> None:
        self._runner = runner
        self._queue = queue
        self._selection = selection or EveryPrompt((), 0)
        # Of the generators, before their first chunks.
        self.notes: tuple[str, ...] = ()

    def __enter__(self) -> Pipeline:
        self.notes = self._runner.executor.start()
        for note in self.notes:
            self._runner.report(note)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._runner.close()

    @property
    def seconds_in_caller(self) -> float:
        """Generation and scoring done in the trainer's own time so far."""
        return self._runner.executor.seconds_in_caller

    @property
    def restarts(self) -> int:
        """How often a generator process was restarted."""
        return self._runner.executor.restarts

    def tokens(self) -> tuple[int, int]:
        """Response tokens generated so far, and those among them that have not been taken yet."""
        return self._queue.tokens()

    def measures(self) -> Metrics:
        """All metrics of the queue, once the weights after a round are filled in: sums of a virtual
        cluster until then, or counts of the round where groups are recycled."""
        return self._queue.measures()

    def weights_of(self, version: int) -> Weights:
        """A version that wrote samples of the present round."""
        return self._runner.versions[version]

    def fill(self, weights: Weights) -> None:
        """Submit all that may be generated now that these weights exist."""
        self._runner.publish(weights)
        self._queue.fill(weights)

    def take(self, weights: Weights) -> RoundRollouts:
        """Wait for the samples of the next round; raises what a worker raised.

        Nothing is taken before all of them are finished: a run that stops meanwhile loses nothing.
        """
        self.fill(weights)
        return self._queue.take(weights)

    def finish(self) -> None:
        """Wait until chunks on their way are written, but those that later versions continue."""
        self._queue.finish()

    def observe(self, round_: int, groups: Sequence[Group]) -> Metrics:
        """Let later prompts follow from the results of a round, before its weights are filled in.
        Gives metrics of the selection."""
        return self._selection.observe(round_, groups)

    def state(self) -> tuple[dict[str, Any], list[Queued]]:
        """What a checkpoint stores: counters, and all that is begun but not taken."""
        counters, queued = self._queue.state()
        if selected := self._selection.state():
            counters["prompts"] = selected
        return counters, queued

    def history(self) -> dict[int, Weights]:
        """Every version that may have written samples still to be taken."""
        return self._runner.history()

    def restore(
        self,
        counters: Mapping[str, Any],
        queued: Sequence[Queued],
        weights: Mapping[int, Weights],
    ) -> None:
        """Continue from a checkpoint."""
        self.restore_prompts(counters)
        self._queue.restore(counters, queued, weights)

    def restore_prompts(self, counters: Mapping[str, Any]) -> None:
        """Take the selection of prompts from a checkpoint, whose chunks can then be read."""
        self._selection.restore(counters.get("prompts", {}))

    def chunk(self, number: int) -> Chunk:
        """The run's n-th chunk."""
        return self._runner.chunk(number)

"""The executor of mode=virtual: real samples, which are finished in virtual time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol

from rlhf_lab.rollout.chunk_states import PendingChunk, QueuedChunk
from rlhf_lab.rollout.cluster.job import PUBLISH, SUBMIT, Course, Drawn, Job
from rlhf_lab.rollout.cluster.model import Cluster
from rlhf_lab.rollout.cluster.options import ClusterOptions, TakeOrder
from rlhf_lab.rollout.cluster.writer import (
    drawn,
    in_tokens,
    prompt_tokens,
    virtual_lengths,
    written_by,
)
from rlhf_lab.rollout.feeds import LatestWeights, Segments
from rlhf_lab.types.data import Metrics, Weights
from rlhf_lab.types.protocols import WeightFeed
from rlhf_lab.types.rollouts import Chunk, Rollout


class TrainerClock:
    """Moves the clock of a cluster as its trainer does, and sums up the trainer's time."""

    def __init__(self, cluster: Cluster, options: ClusterOptions) -> None:
        self._cluster = cluster
        self._options = options
        self._train = self._sync = self._wait = 0.0

    def advance(self) -> None:
        """Wait until another chunk is finished."""
        start = self._cluster.now
        self._cluster.advance()
        self._wait += self._cluster.now - start

    def publish(self, version: int, tokens: float) -> None:
        """Train on so many virtual tokens, all passes counted, and publish what comes of it. The
        first version was there before."""
        options = self._options
        if self._cluster.newest >= 0:
            train = options.training_seconds(tokens)
            self._train += train
            self._sync += options.sync_seconds
            if options.is_colocated:
                self._cluster.pause(True)
            self._cluster.elapse(train + options.sync_seconds)
            self._cluster.pause(False)
        self._cluster.publish(version)

    def measures(self) -> Metrics:
        """Sums in virtual seconds and virtual tokens so far."""
        generators = self._cluster.generators
        now = self._cluster.now
        busy = sum(generator.busy for generator in generators)
        loading = sum(generator.loading for generator in generators)
        return {
            "virtual_seconds/wall": now,
            "virtual_seconds/train": self._train,
            "virtual_seconds/sync": self._sync,
            "virtual_seconds/wait": self._wait,
            "virtual_seconds/generate": busy,
            "virtual_seconds/load": loading,
            "virtual_seconds/generator_wait": len(generators) * now - busy - loading,
            "virtual_seconds/tool_wait": sum(generator.tool_wait for generator in generators),
            "virtual/decoded_tokens": sum(generator.decoded for generator in generators),
            "virtual/lost_tokens": sum(generator.lost for generator in generators),
            "virtual/failures": sum(generator.failures for generator in generators),
        }


@dataclass(frozen=True)
class Places:
    """Places that rounds have for chunks. version: of the present round. missing: its places that
    are not taken. per_round: places of each later round."""

    version: int
    missing: int
    per_round: int

    def until(self, round_: int) -> int:
        """Places up to the end of a round."""
        return self.missing + (round_ - self.version) * self.per_round


def able_to_come(jobs: Sequence[Job], places: Places, max_staleness: int | None) -> list[Job]:
    """The finished chunks that may come next.

    A chunk of version w must come in round w + max_staleness at the latest. Where the chunks of
    versions up to w fill all places until then, only they may come: earliest deadline first, with
    as much freedom as deadlines leave. The budget admits too few chunks for more than fill them.
    None: there are no deadlines.
    """
    finished = [job for job in jobs if job.is_finished]
    if max_staleness is None:
        return finished
    begun = Counter(job.version for job in jobs if job.is_started)
    count = 0
    for version in sorted(begun):
        count += begun[version]
        if count >= places.until(version + max_staleness):
            return [job for job in finished if job.version <= version]
    return finished


class ChunkWriter(Protocol):
    """Writes a chunk by the weights of a feed. opening: notes before the first chunk."""

    def opening(self) -> tuple[str, ...]: ...

    def run(self, feed: WeightFeed, chunk: Chunk) -> Rollout: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class Setting:
    """What the cluster must know of its run. chunks_per_round: chunks of a round. limit: tokens of
    the longest sample, observations included. passes: over the rows of a round. max_staleness:
    rounds that a chunk may be old when it is taken, with waiting for those that would become older;
    None lets them, to be dropped. seed: keys the failures of generators."""

    chunks_per_round: int
    limit: int
    passes: int
    max_staleness: int | None
    seed: int


class VirtualExecutor:
    """Generates in the trainer's time, and hands over in virtual time. It is the pipeline's
    executor and decides the order in which chunks arrive.

    A chunk is written when its virtual generator begins it, by the version that this generator
    holds then; its virtual lengths follow from the samples. While it is under way, another version
    may go on with it.
    """

    failure: BaseException | None = None
    restarts = 0

    def __init__(
        self, make_worker: Callable[[], ChunkWriter], options: ClusterOptions, setting: Setting
    ) -> None:
        self._make_worker = make_worker
        self._options = options
        self._setting = setting
        self._cluster = Cluster(options, self._write, setting.seed)
        self._clock = TrainerClock(self._cluster, options)
        self._course = Course()
        self._jobs: dict[int, Job] = {}
        self._chunks: dict[int, Chunk] = {}
        self._rollouts: dict[int, Rollout] = {}
        self._futures: dict[int, Future[Rollout]] = {}
        self._weights: dict[int, Weights] = {}
        self._trained_tokens = 0.0
        self.seconds_in_caller = 0.0
        self.on_done: Callable[[Rollout], None] = lambda _: None

    def start(self) -> tuple[str, ...]:
        self._worker = self._make_worker()
        return self._worker.opening()

    def close(self) -> None:
        """Stop what the generator started."""
        self._worker.close()

    def prefetch(self, weights: Weights, chunks: Sequence[Chunk]) -> None:
        """Nothing to do: which version writes a chunk is known when it begins."""

    def latest(self, per_token: bool) -> WeightFeed:
        """A placeholder: the cluster chooses the versions of a chunk."""
        return LatestWeights(lambda: self._weights[max(self._weights)], per_token)

    def publish(self, weights: Weights) -> None:
        """Spend the virtual seconds of the training that made a version, and make it the newest."""
        self._weights[weights.version] = weights
        if weights.version > self._cluster.newest:
            self._course.publish(weights.version, self._trained_tokens)
            self._clock.publish(weights.version, self._trained_tokens)
            self._settle()
        needed = [job.version for job in self._jobs.values() if job.is_started]
        oldest = min([*needed, weights.version])
        self._weights = {v: w for v, w in self._weights.items() if v >= oldest}

    def submit(self, feed: WeightFeed, chunk: Chunk) -> Future[Rollout]:
        number = chunk.round * self._setting.chunks_per_round + chunk.index
        rows = len(chunk.prompts) * chunk.group_size
        job = Job(number, rows, prompt_tokens(chunk, self._options))
        self._jobs[number], self._chunks[number] = job, chunk
        self._futures[number] = Future()
        self._course.submit(job)
        self._cluster.submit(job)
        return self._futures[number]

    def _write(self, number: int, segments: Segments) -> Drawn:
        known = self._course.known()
        if known is not None:
            return known
        rollout = written_by(
            self._worker.run,
            self._chunks[number],
            in_tokens(segments, self._options),
            self._weights,
            self._options.weight_update,
        )
        self.seconds_in_caller += rollout.seconds
        self._rollouts[number] = rollout
        found = drawn(rollout, self._options, self._setting.limit)
        self._course.wrote(found)
        return found

    def next(self, pending: Sequence[PendingChunk], version: int, missing: int) -> PendingChunk:
        """The chunk to take next, once it is finished in virtual time."""
        while (found := self._ready(pending, version, missing)) is None:
            self._course.advance()
            self._clock.advance()
            self._settle()
        return found

    def _ready(
        self, pending: Sequence[PendingChunk], version: int, missing: int
    ) -> PendingChunk | None:
        if self._options.order is TakeOrder.submission:
            return pending[0] if self._jobs[pending[0].number].is_finished else None
        jobs = [self._jobs[one.number] for one in pending]
        places = Places(version, missing, self._setting.chunks_per_round)
        able = able_to_come(jobs, places, self._setting.max_staleness)
        first = min(able, key=lambda job: job.rank, default=None)
        return next((one for one in pending if first and one.number == first.number), None)

    def _settle(self) -> None:
        """Finish the futures of chunks that were finished since the last call."""
        for job in self._cluster.drain_finished():
            rollout = self._rollouts[job.number]
            self.on_done(rollout)
            self._futures[job.number].set_result(rollout)

    def taken(self, chosen: Sequence[Rollout]) -> None:
        """Count the virtual tokens that a round trains on."""
        options, limit = self._options, self._setting.limit
        tokens = 0.0
        for rollout in chosen:
            group_size = rollout.chunk.group_size
            tokens += prompt_tokens(rollout.chunk, options) * group_size
            tokens += options.row_scale * sum(virtual_lengths(rollout, options, limit))
        self._trained_tokens = self._setting.passes * tokens

    def row(self, number: int) -> Mapping[str, Any]:
        """Virtual seconds of a chunk for the schedule; it is forgotten."""
        job = self._jobs.pop(number)
        for known in (self._chunks, self._rollouts, self._futures):
            known.pop(number, None)
        row = {
            "virtual_generator": job.generator,
            "virtual_seconds_start": job.moments[0],
            "virtual_seconds_versions": [
                [version, second]
                for (_, version), second in zip(job.segments, job.moments, strict=True)
            ],
            "virtual_seconds_end": job.ended,
            "virtual_seconds_taken": self._cluster.now,
        }
        if self._options.is_colocated:
            row["virtual_seconds_pauses"] = [list(pause) for pause in job.pauses]
        return row

    def measures(self) -> Metrics:
        return self._clock.measures()

    def state(self) -> Mapping[str, Any]:
        return self._course.state()

    def written(self, pending: PendingChunk) -> Rollout | None:
        return self._rollouts.get(pending.number)

    def restore(
        self,
        state: Mapping[str, Any],
        queued: Sequence[QueuedChunk],
        chunk: Callable[[int], Chunk],
    ) -> None:
        """Let the cluster go through its course again, by the lengths that were drawn."""
        for kind, *values in self._course.restore(state):
            if kind == PUBLISH:
                self._clock.publish(*values)
            elif kind == SUBMIT:
                job = self._jobs[values[0]] = Job(*values)
                self._cluster.submit(job)
            else:
                for _ in range(values[0]):
                    self._clock.advance()
        self._jobs = {one.number: self._jobs[one.number] for one in queued}
        self._chunks = {one.number: chunk(one.number) for one in queued}
        self._rollouts = {one.number: one.rollout for one in queued if one.rollout is not None}
        self._cluster.drain_finished()
        for number, job in self._jobs.items():
            self._futures[number] = Future()
            if job.is_finished:
                self._futures[number].set_result(self._rollouts[number])

    def restored(self, chunk: QueuedChunk) -> Future[Rollout] | None:
        return self._futures[chunk.number]

"""A virtual cluster without learning: given lengths, the lag and the time that follow.

The pipeline is that of a run, with a writer that gives lengths in place of samples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rlhf_lab.rollout.budget import StalenessBudget
from rlhf_lab.rollout.chunk_queue import ChunkQueue
from rlhf_lab.rollout.chunk_runner import ChunkRunner
from rlhf_lab.rollout.cluster.executor import Setting, VirtualExecutor
from rlhf_lab.rollout.cluster.job import Waits
from rlhf_lab.rollout.cluster.options import ClusterOptions
from rlhf_lab.rollout.feeds import SegmentRecorder
from rlhf_lab.rollout.mode import ExecutorKind, Mode, WeightPolicy
from rlhf_lab.rollout.pipeline import Pipeline
from rlhf_lab.types.data import Metrics, Weights
from rlhf_lab.types.heartbeat import nothing
from rlhf_lab.types.protocols import WeightFeed
from rlhf_lab.types.rollouts import Chunk, Rollout
from rlhf_lab.types.samples import Episode, Example, Finish, Group, Prompt, Sample, lag_in_rounds

ROW = Example("row", "", "")


@dataclass(frozen=True)
class Work:
    """What a run writes. lengths(number): response tokens of each row of a chunk. prompt(number):
    tokens of its prompt. limit: the response limit. waits(number): of each row, the tokens behind
    which it waits for a tool, and virtual seconds."""

    lengths: Callable[[int], Sequence[int]]
    prompt: Callable[[int], int]
    limit: int
    chunks_per_round: int
    num_rounds: int
    passes: int = 1
    waits: Callable[[int], Sequence[Waits]] = lambda _: ()


@dataclass(frozen=True)
class Simulation:
    """rows: the schedule, as a run writes it. rounds: the cluster's sums when each round's version
    was published, in virtual seconds and tokens. tokens: response tokens (generated, in flight) at
    the end."""

    rows: list[dict[str, Any]]
    rounds: list[Metrics]
    tokens: tuple[int, int]

    @property
    def lags(self) -> list[int]:
        """Rounds that each chunk was old when it was trained on, in the order of training."""
        return [
            lag_in_rounds(row["round"], row["segments"][0][1])
            for row in self.rows
            if not row["dropped"]
        ]


class LengthWriter:
    """A worker that writes samples of given lengths and nothing else."""

    def __init__(self, work: Work) -> None:
        self._work = work

    def opening(self) -> tuple[str, ...]:
        """Nothing to say."""
        return ()

    def run(self, feed: WeightFeed, chunk: Chunk) -> Rollout:
        number = chunk.round * self._work.chunks_per_round + chunk.index
        lengths = self._work.lengths(number)
        recorder = SegmentRecorder(feed, nothing)
        version = recorder.at(0).version
        if not isinstance(feed, Weights):
            for step in range(1, max(lengths)):
                recorder.at(step)
        waits = self._work.waits(number) or [()] * len(lengths)
        samples = tuple(
            Sample((0,) * length, (), version, Finish.eos, "", episode=waiting(tools))
            for length, tools in zip(lengths, waits, strict=True)
        )
        tokens = {"generated_tokens": sum(len(sample.tokens) for sample in samples)}
        group = Group(chunk.prompts[0], samples, (0.0,) * len(samples))
        return Rollout(chunk, (group,), recorder.segments, tokens)

    def close(self) -> None:
        """Nothing was started."""


def waiting(tools: Waits) -> Episode | None:
    """An episode that waits for these tools; None for a sample that waits for none."""
    if not tools:
        return None
    turns = tuple((tokens - 1, 0.0) for tokens, _ in tools)
    return Episode(turns=turns, waits=tuple(seconds for _, seconds in tools))


def simulate(options: ClusterOptions, mode: Mode, work: Work, seed: int = 0) -> Simulation:
    """Let a cluster train on chunks of given lengths, which no version changes."""
    setting = Setting(work.chunks_per_round, work.limit, work.passes, mode.deadline, seed)
    executor = VirtualExecutor(lambda: LengthWriter(work), options, setting)
    budget = StalenessBudget(mode.rounds_ahead, work.chunks_per_round, work.num_rounds)
    runner = ChunkRunner(executor, lambda number: chunk_of(work, number), mode)
    queue = ChunkQueue(runner, budget, work.chunks_per_round, mode, arrivals=executor)
    pipe = Pipeline(runner, queue)
    rows: list[dict[str, Any]] = []
    rounds: list[Metrics] = []
    with pipe:
        for version in range(work.num_rounds):
            taken = pipe.take(Weights(version, {}))
            rows += taken.schedule
            pipe.fill(Weights(version + 1, {}))
            rounds.append(pipe.measures())
        return Simulation(rows, rounds, pipe.tokens())


def chunk_of(work: Work, number: int) -> Chunk:
    """A chunk of one prompt, with as many samples as there are lengths."""
    round_, index = divmod(number, work.chunks_per_round)
    prompt = Prompt(number, (0,) * work.prompt(number), ROW)
    return Chunk(round_, index, (prompt,), len(work.lengths(number)))


def virtual_mode(max_staleness: int, **options: Any) -> Mode:
    """The mode of a run on a virtual cluster."""
    return Mode(
        "virtual", max_staleness, ExecutorKind.virtual, weights=WeightPolicy.cluster, **options
    )

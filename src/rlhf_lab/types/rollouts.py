"""Chunks and rollouts: what generation is given, and what it returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rlhf_lab.types.samples import UNBEGUN, Group, Prompt, Sample


@dataclass(frozen=True)
class Chunk:
    """The unit of generation: a fixed list of prompts of one round, the same in every mode but one
    in which groups move between rounds.

    round, index: which round it belongs to, and its number within it. greedy: the last sample of
    each group takes the likeliest token at every step. stop_at: response tokens, or turns of an
    episode, at which to stop for now (0: at their limit). begun: the samples of an earlier stop, in
    the order of their prompts; the unfinished ones are continued. scores_groups: each group is
    scored once its samples have ended; else all are, once those of the whole chunk have.
    stops_by_tokens: `stop_at` counts the policy's tokens of an episode too, and may lie within a
    turn.
    """

    round: int
    index: int
    prompts: tuple[Prompt, ...]
    group_size: int
    greedy: bool = False
    stop_at: int = 0
    begun: tuple[Sample, ...] = ()
    scores_groups: bool = False
    stops_by_tokens: bool = False

    @property
    def samples(self) -> tuple[Sample, ...]:
        """All samples as they are before generation, group by group."""
        return self.begun or (UNBEGUN,) * (len(self.prompts) * self.group_size)

    def stop(self, limit: int) -> int:
        """Response tokens at which to stop now, where `limit` is the response limit."""
        return min(self.stop_at or limit, limit)

    def grouped(self, samples: Sequence[Sample]) -> tuple[Group, ...]:
        """Samples of all prompts, in order, as groups."""
        size = self.group_size
        return tuple(
            Group(prompt, tuple(samples[index * size : (index + 1) * size]))
            for index, prompt in enumerate(self.prompts)
        )


@dataclass(frozen=True)
class Span:
    """A stretch of time spent in one phase, in seconds of the host's monotonic clock.

    worker, version: set where a rollout was written in segments; None means those of the rollout.
    """

    phase: str
    start: float
    end: float
    worker: int | None = None
    version: int | None = None


@dataclass(frozen=True)
class GeneratorReport:
    """A generator's own metrics for the round's row, and its notes for the user."""

    measures: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Rollout:
    """A generated and scored chunk.

    segments: (step, version) pairs: the version that wrote the tokens from that step on. tokens:
    counts for the ledger. spans: time spent. worker: number of the generator, -1 for the trainer.
    """

    chunk: Chunk
    groups: tuple[Group, ...]
    segments: tuple[tuple[int, int], ...]
    tokens: Mapping[str, int]
    spans: tuple[Span, ...] = ()
    worker: int = -1
    report: GeneratorReport = field(default_factory=GeneratorReport)

    @property
    def version(self) -> int:
        """The oldest version that wrote tokens of it."""
        return self.segments[0][1]

    @property
    def seconds(self) -> float:
        """Seconds spent generating and scoring."""
        return sum(span.end - span.start for span in self.spans)

    @property
    def response_tokens(self) -> int:
        """Response tokens written, over all samples."""
        return self.tokens["generated_tokens"]

    @property
    def samples(self) -> tuple[Sample, ...]:
        """All samples, in the order of their prompts."""
        return tuple(sample for group in self.groups for sample in group.samples)

    @property
    def steps(self) -> int:
        """Tokens of its longest response, with what an environment wrote in it."""
        return max((sample.steps for sample in self.samples), default=0)

    @property
    def is_finished(self) -> bool:
        """Whether no sample is left to be continued."""
        return all(group.is_finished for group in self.groups)

"""A chunk in the virtual cluster: what it has to write, and how far it has come."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rlhf_lab.rollout.feeds import Segments

# Virtual lengths of a chunk's rows, given its number and the versions that write it from which
# decoding step on.
Write = Callable[[int, Segments], Sequence[int]]


@dataclass
class Job:
    """A chunk that a generator writes. number: over the run. rows: its samples. prompt_tokens:
    virtual, read once before it begins.

    lengths: virtual tokens of each row, known once it has begun. steps: decoding steps done.
    segments: (step, version) pairs. moments: virtual seconds at which each segment began. pauses:
    virtual seconds from which and until which its generator was paused. ended: virtual seconds.
    rank: its place in the order of completion. restarts: how often a generator failed under it.
    """

    number: int
    rows: int
    prompt_tokens: float
    lengths: list[int] = field(default_factory=list)
    steps: int = 0
    segments: list[tuple[int, int]] = field(default_factory=list)
    moments: list[float] = field(default_factory=list)
    pauses: list[tuple[float, float]] = field(default_factory=list)
    generator: int = -1
    ended: float = 0.0
    rank: int = -1
    restarts: int = 0

    @property
    def is_started(self) -> bool:
        return bool(self.segments)

    @property
    def is_finished(self) -> bool:
        return self.rank >= 0

    @property
    def version(self) -> int:
        """The oldest version that wrote it."""
        return self.segments[0][1]

    @property
    def active(self) -> int:
        """Rows that have not ended."""
        return sum(length > self.steps for length in self.lengths)

    @property
    def next_end(self) -> int:
        """Decoding steps until the next row ends; the job must be running."""
        return min(length for length in self.lengths if length > self.steps) - self.steps

    @property
    def decoded(self) -> int:
        """Virtual tokens written so far."""
        return sum(min(length, self.steps) for length in self.lengths)

    def begin(self, version: int, generator: int, now: float, write: Write) -> None:
        """Start with the first token, by this version."""
        self.generator, self.steps = generator, 0
        self.follow(version, now, write)

    def follow(self, version: int, now: float, write: Write) -> None:
        """Let a version write all tokens from here on."""
        if self.segments and self.segments[-1][0] == self.steps:
            self.segments.pop()
            self.moments.pop()
        self.segments.append((self.steps, version))
        self.moments.append(float(now))
        self.lengths = list(write(self.number, tuple(self.segments)))

    def advance(self, steps: int) -> int:
        """Decode so many steps. Returns the virtual tokens written."""
        before = self.decoded
        self.steps += steps
        return self.decoded - before

    def pause(self, start: float, end: float) -> None:
        """Count virtual seconds of a pause, which may go on with the one before."""
        if self.pauses and self.pauses[-1][1] == start:
            start, _ = self.pauses.pop()
        if end > start:
            self.pauses.append((start, end))

    def lose(self) -> int:
        """Forget all that was written, so that it begins anew. Returns the virtual tokens lost."""
        lost = self.decoded
        self.lengths, self.segments, self.moments, self.steps = [], [], [], 0
        self.pauses = []
        self.restarts += 1
        return lost

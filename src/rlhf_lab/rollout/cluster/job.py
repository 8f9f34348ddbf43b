"""A chunk in the virtual cluster: what it has to write, and how far it has come."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rlhf_lab.rollout.feeds import Segments

# (decoding steps of a row before it, virtual seconds) of each wait for a tool.
Waits = Sequence[tuple[int, float]]


class Drawn(NamedTuple):
    """What a chunk has to write. lengths: virtual tokens of each row. waits: of each row; empty
    where none waits."""

    lengths: Sequence[int]
    waits: Sequence[Waits] = ()


# What a chunk has to write, given its number and the versions that write it from which decoding
# step on.
Write = Callable[[int, Segments], Drawn]


@dataclass
class Row:
    """A sequence that a generator decodes. length: of its virtual tokens. waits: those that are to
    come. done: decoding steps so far. until: virtual second at which its tool has answered; None
    where it waits for none."""

    length: int
    waits: deque[tuple[int, float]]
    done: int = 0
    until: float | None = None

    @property
    def is_open(self) -> bool:
        """Whether it has not ended; it keeps its place on the generator until then."""
        return self.done < self.length or self.until is not None

    @property
    def is_decoding(self) -> bool:
        return self.done < self.length and self.until is None

    @property
    def next_stop(self) -> int:
        """Decoding steps until it ends or waits."""
        return (self.waits[0][0] if self.waits else self.length) - self.done

    def advance(self, steps: int, now: float) -> None:
        """Decode so many steps, until now."""
        self.done += steps
        if self.waits and self.waits[0][0] == self.done:
            self.until = now + self.waits.popleft()[1]


@dataclass
class Job:
    """A chunk that a generator writes. number: over the run. rows: its samples. prompt_tokens:
    virtual, read once before it begins.

    sequences: what its rows have to write, known once it has begun. segments: (step, version)
    pairs. moments: virtual seconds at which each segment began. pauses:
    virtual seconds from which and until which its generator was paused. ended: virtual seconds.
    rank: its place in the order of completion. restarts: how often a generator failed under it.
    """

    number: int
    rows: int
    prompt_tokens: float
    sequences: list[Row] = field(default_factory=list)
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
        return sum(row.is_open for row in self.sequences)

    @property
    def decoding(self) -> int:
        """Rows that are decoded now: those that have not ended and wait for no tool."""
        return sum(row.is_decoding for row in self.sequences)

    @property
    def steps(self) -> int:
        """Decoding steps done, of the row that has come farthest."""
        return max((row.done for row in self.sequences), default=0)

    @property
    def next_stop(self) -> float:
        """Decoding steps until the next row ends or waits; infinite where none is decoded."""
        stops = (row.next_stop for row in self.sequences if row.is_decoding)
        return min(stops, default=math.inf)

    @property
    def decoded(self) -> int:
        """Virtual tokens written so far."""
        return sum(row.done for row in self.sequences)

    def begin(self, version: int, generator: int, now: float, write: Write) -> None:
        """Start with the first token, by this version."""
        self.generator = generator
        self.follow(version, now, write)

    def follow(self, version: int, now: float, write: Write) -> None:
        """Let a version write all tokens from here on."""
        steps = self.steps
        if self.segments and self.segments[-1][0] == steps:
            self.segments.pop()
            self.moments.pop()
        self.segments.append((steps, version))
        self.moments.append(float(now))
        lengths, waits = write(self.number, tuple(self.segments))
        all_waits = waits or [()] * len(lengths)
        self.sequences = [
            Row(length, deque(tools), done=min(length, steps))
            for length, tools in zip(lengths, all_waits, strict=True)
        ]

    def resume(self, now: float) -> None:
        """Go on with the rows whose tools have answered."""
        for row in self.sequences:
            if row.until is not None and row.until <= now:
                row.until = None

    def advance(self, steps: int, now: float) -> list[float]:
        """Decode so many steps, until now. Returns the virtual seconds at which the tools that are
        waited for from now on will have answered."""
        decoding = [row for row in self.sequences if row.is_decoding]
        for row in decoding:
            row.advance(steps, now)
        return [row.until for row in decoding if row.until is not None]

    def pause(self, start: float, end: float) -> None:
        """Count virtual seconds of a pause, which may go on with the one before."""
        if self.pauses and self.pauses[-1][1] == start:
            start, _ = self.pauses.pop()
        if end > start:
            self.pauses.append((start, end))

    def lose(self) -> int:
        """Forget all that was written, so that it begins anew. Returns the virtual tokens lost."""
        lost = self.decoded
        self.sequences, self.segments, self.moments, self.pauses = [], [], [], []
        self.restarts += 1
        return lost


PUBLISH, SUBMIT, ADVANCE = "publish", "submit", "advance"


class Course:
    """Calls in their order, and what each writing gave, in its order."""

    def __init__(self) -> None:
        self._calls: list[list[Any]] = []
        self._drawn: list[Drawn] = []
        self._known: deque[Drawn] = deque()

    def publish(self, version: int, trained_tokens: float) -> None:
        self._calls.append([PUBLISH, version, trained_tokens])

    def submit(self, job: Job) -> None:
        self._calls.append([SUBMIT, job.number, job.rows, job.prompt_tokens])

    def advance(self) -> None:
        if self._calls and self._calls[-1][0] == ADVANCE:
            self._calls[-1][1] += 1
        else:
            self._calls.append([ADVANCE, 1])

    def wrote(self, drawn: Drawn) -> None:
        self._drawn.append(drawn)

    def known(self) -> Drawn | None:
        """What the next writing gave, while the course is gone through again."""
        return self._known.popleft() if self._known else None

    def state(self) -> dict[str, Any]:
        """The course as JSON-able data, for `restore`."""
        return {
            "calls": self._calls,
            "lengths": [list(drawn.lengths) for drawn in self._drawn],
            "waits": [list(map(list, drawn.waits)) for drawn in self._drawn],
        }

    def restore(self, state: Mapping[str, Any]) -> list[list[Any]]:
        """Take over a course, whose writings `known` gives. Returns its calls. Checkpoints from
        before there were waits have none."""
        self._calls = [list(call) for call in state["calls"]]
        waits = state.get("waits") or [()] * len(state["lengths"])
        self._drawn = list(map(Drawn, state["lengths"], waits))
        self._known = deque(self._drawn)
        return self._calls

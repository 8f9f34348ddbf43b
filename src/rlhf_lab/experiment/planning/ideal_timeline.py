"""The ideal timeline of a run: its measured seconds, placed as early as its staleness allows."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

Span = tuple[float, float]


@dataclass(frozen=True)
class Work:
    """generate: seconds of each chunk of each round. train: seconds of each round in the trainer's
    lane, with neither waiting nor generation in it."""

    generate: Sequence[Sequence[float]]
    train: Sequence[float]

    def __post_init__(self) -> None:
        assert len(self.generate) == len(self.train), "as many rounds generated as trained"

    @property
    def generating(self) -> float:
        """Seconds of all chunks."""
        return sum(chain.from_iterable(self.generate))

    def with_samples(self, factor: float) -> Work:
        """The same with `factor` times the samples generated, and no more of them trained on."""
        return Work(
            [[factor * seconds for seconds in round_] for round_ in self.generate], self.train
        )


@dataclass(frozen=True)
class Timeline:
    """Start and end of each chunk of each round, and of each round's training."""

    generate: tuple[tuple[Span, ...], ...]
    train: tuple[Span, ...]
    num_generators: int

    @property
    def wall(self) -> float:
        """Seconds until the last update."""
        return self.train[-1][1] if self.train else 0.0

    @property
    def trainer_wait(self) -> float:
        """Seconds without work in the trainer's lane."""
        mine = lasted(self.train) + (0.0 if self.num_generators else self._generating)
        return max(0.0, self.wall - mine)

    @property
    def generator_wait(self) -> float:
        """Seconds without work, summed over the generators; those after their last chunk count."""
        if not self.num_generators:
            return 0.0
        return max(0.0, self.num_generators * self.wall - self._generating)

    @property
    def trainer_wait_share(self) -> float:
        return share(self.trainer_wait, self.wall)

    @property
    def generator_wait_share(self) -> float:
        return share(self.generator_wait, self.num_generators * self.wall)

    @property
    def _generating(self) -> float:
        return lasted(chain.from_iterable(self.generate))


def lasted(spans: Sequence[Span] | chain[Span]) -> float:
    return sum(end - start for start, end in spans)


def share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def ideal(work: Work, max_staleness: int, num_generators: int) -> Timeline:
    """The earliest timeline: new weights are everywhere at once, and nothing else takes time.

    Chunks of round r may start when version max(0, r - max_staleness) exists. They start in order,
    each on the generator that is free first, so neither more generators nor more staleness ever
    makes a run longer (a list of jobs may be slowed down by more machines only where it is
    reordered: Graham 1969). num_generators=0: the trainer generates what the budget admits.
    """
    if not num_generators:
        return alone(work, max_staleness)
    lanes = Lanes(max_staleness, num_generators)
    rounds = [lanes.round(*round_) for round_ in zip(work.generate, work.train, strict=True)]
    return Timeline(
        tuple(r for r, _ in rounds), tuple(train for _, train in rounds), num_generators
    )


class Lanes:
    """Generators beside the trainer, between two rounds: what the next ones depend on."""

    def __init__(self, max_staleness: int, num_generators: int) -> None:
        self._free = [0.0] * num_generators
        # Ends of the last trainings: the first published the weights of the next round's samples.
        self._trained = deque([0.0] * (max_staleness + 1), maxlen=max_staleness + 1)

    @property
    def now(self) -> float:
        """The end of the last training."""
        return self._trained[-1]

    @property
    def shape(self) -> tuple[float, ...]:
        """Everything relative to `now`. Equal shapes have equal futures."""
        published = self._trained[0]
        free = sorted(max(published, end) for end in self._free)
        return tuple(time - self.now for time in (*self._trained, *free))

    def round(self, chunks: Sequence[float], seconds: float) -> tuple[tuple[Span, ...], Span]:
        """Place the next round's chunks, then its training."""
        published, spans = self._trained[0], []
        for chunk in chunks:
            start = max(published, self._free[0])
            heapq.heapreplace(self._free, start + chunk)
            spans.append((start, start + chunk))
        start = max([self.now, *(end for _, end in spans)])
        self._trained.append(start + seconds)
        return tuple(spans), (start, start + seconds)


def alone(work: Work, max_staleness: int) -> Timeline:
    """Everything in the trainer's lane: before round r, what its version admits."""
    now = 0.0
    generate: list[tuple[Span, ...]] = []
    train: list[Span] = []
    for round_, seconds in enumerate(work.train):
        for chunks in work.generate[len(generate) : round_ + max_staleness + 1]:
            spans = []
            for chunk in chunks:
                spans.append((now, now + chunk))
                now += chunk
            generate.append(tuple(spans))
        train.append((now, now + seconds))
        now += seconds
    return Timeline(tuple(generate), tuple(train), 0)

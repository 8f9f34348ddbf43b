"""Timelines of rounds and their steady state, without and with waiting."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from math import gcd, lcm

Span = tuple[float, float]
# Chunks that are placed in about a second: a pattern that has not repeated by then is extrapolated.
MOST_PLACED = 300_000
# Rhythms of more periods than this are rare: they need times that share no measure.
LONGEST_RHYTHM = 16
# Differences that floats make, as a share of a period's length.
SAME = 1e-9


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


@dataclass(frozen=True)
class Repeating:
    """Rounds without end. chunk_rows: rows of each chunk of a round; seconds_per_row: of one chunk
    after the other, over and over; train: seconds of each round in the trainer's lane, likewise."""

    chunk_rows: Sequence[int]
    seconds_per_row: Sequence[float]
    train: Sequence[float]

    @property
    def period(self) -> int:
        """Rounds after which everything repeats."""
        chunks = len(self.seconds_per_row) // gcd(len(self.seconds_per_row), len(self.chunk_rows))
        return lcm(len(self.train), chunks)

    def chunks(self, round_: int) -> list[float]:
        """Seconds of a round's chunks."""
        first = round_ * len(self.chunk_rows)
        number = len(self.seconds_per_row)
        return [
            rows * self.seconds_per_row[(first + place) % number]
            for place, rows in enumerate(self.chunk_rows)
        ]

    def training(self, num_rounds: int) -> float:
        """Seconds of so many rounds in the trainer's lane."""
        whole, rest = divmod(num_rounds, len(self.train))
        return whole * sum(self.train) + sum(self.train[:rest])

    def generating(self, num_rounds: int) -> float:
        """Seconds of all chunks of so many rounds; of very many in a period, by their mean."""
        if self.period * len(self.chunk_rows) > MOST_PLACED:
            mean = sum(self.seconds_per_row) / len(self.seconds_per_row)
            return num_rounds * sum(self.chunk_rows) * mean
        whole, rest = divmod(num_rounds, self.period)
        of_rounds = [sum(self.chunks(round_)) for round_ in range(self.period)]
        return whole * sum(of_rounds) + sum(of_rounds[:rest])


@dataclass(frozen=True)
class Totals:
    """wall, and the seconds without work of the trainer and, summed, of the generators."""

    wall: float
    trainer_wait: float
    generator_wait: float


def totals(work: Repeating, num_rounds: int, max_staleness: int, num_generators: int) -> Totals:
    """What `schedule.ideal` comes to, for as many rounds as one likes."""
    training, generating = work.training(num_rounds), work.generating(num_rounds)
    if not num_generators:
        return Totals(training + generating, 0.0, 0.0)
    whole = wall(work, num_rounds, Lanes(max_staleness, num_generators))
    return Totals(whole, max(0.0, whole - training), max(0.0, num_generators * whole - generating))


def wall(work: Repeating, num_rounds: int, lanes: Lanes) -> float:
    """Seconds until the last update."""

    def place(round_: int) -> None:
        lanes.round(work.chunks(round_), work.train[round_ % len(work.train)])

    marks: deque[Mark] = deque(maxlen=LONGEST_RHYTHM)
    ends = [0.0]
    for round_ in range(min(num_rounds, max(2, MOST_PLACED // len(work.chunk_rows)))):
        if round_ % work.period == 0:
            shape = lanes.shape
            if mark := next((mark for mark in marks if mark.is_like(shape, lanes.now)), None):
                times, rest = divmod(num_rounds - round_, round_ - mark.round)
                seconds = lanes.now - mark.now
                for further in range(round_, round_ + rest):
                    place(further)
                return lanes.now + times * seconds
            marks.append(Mark(round_, lanes.now, shape))
        place(round_)
        ends.append(lanes.now)
    half = len(ends) // 2
    rate = (ends[-1] - ends[half]) / (len(ends) - 1 - half)
    return ends[-1] + (num_rounds - len(ends) + 1) * rate


@dataclass(frozen=True)
class Mark:
    """How the lanes stood when a period began."""

    round: int
    now: float
    shape: tuple[float, ...]

    def is_like(self, shape: tuple[float, ...], now: float) -> bool:
        """Whether they stand so again, but for what floats round."""
        most = SAME * (now - self.now)
        return all(abs(a - b) <= most for a, b in zip(self.shape, shape, strict=True))

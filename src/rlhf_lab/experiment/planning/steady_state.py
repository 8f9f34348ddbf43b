"""The ideal timeline of very many rounds whose seconds repeat, without placing each of them.

Such a timeline falls into a rhythm: once the lanes stand to each other as they stood some periods
before, all that follows repeats. What is left of the rounds is then a multiple of one rhythm.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd, lcm

from rlhf_lab.experiment.planning.ideal_timeline import Lanes

# Chunks that are placed in about a second. What repeats later than that goes on as it did so far.
MOST_PLACED = 300_000
# Rhythms of more periods than this are rare: they need times that share no measure.
LONGEST_RHYTHM = 16
# Differences that floats make, as a share of a period's length.
SAME = 1e-9


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

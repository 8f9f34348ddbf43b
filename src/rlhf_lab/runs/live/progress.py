"""progress.json: what a run's process is doing between two rows of metrics.jsonl.

Its process replaces it every few seconds and removes it at its end. It holds durations and no
moments, so that the clocks of two machines need not agree.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rlhf_lab.runs.disk import atomic_write
from rlhf_lab.runs.reading import MEBIBYTE, Unreadable, read_json
from rlhf_lab.runs.schema import Amount, Count
from rlhf_lab.types.data import Clock

PROGRESS = "progress.json"
# The stage with rounds as units.
TRAIN = "train"
MOST_NOTES = 4


@dataclass(frozen=True)
class Progress:
    """A stage, the units of it that are done, its latest numbers, and the phase within it.

    seconds: since the stage began, or since the process began where there is no stage.
    phase_seconds: since the phase began. notes: the newest lines that the run printed.
    """

    stage: str = ""
    done: Count = 0
    total: Count = 0
    seconds: Amount = 0.0
    numbers: Mapping[str, float] = field(default_factory=dict)
    phase: str = ""
    phase_seconds: Amount = 0.0
    notes: tuple[str, ...] = ()

    @property
    def left(self) -> float | None:
        """Seconds until the stage is done, at its pace so far; None where that is unknown."""
        if not 0 < self.done <= self.total:
            return None
        return self.seconds / self.done * (self.total - self.done)


class Activity:
    """What this process is doing now. Another thread may read it at any time: every change replaces
    a value whole."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began = self._stage_began = self._phase_began = clock()
        self._stage, self._done, self._total = "", 0, 0
        self._numbers: Mapping[str, float] = {}
        self._phase = ""
        self._notes: deque[str] = deque(maxlen=MOST_NOTES)

    def begin(self, stage: str, total: int) -> None:
        self._stage, self._done, self._total = stage, 0, total
        self._numbers = {}
        self._stage_began = self._clock()
        self.enter("")

    def advance(self, amount: int = 1, **numbers: float) -> None:
        self._done += amount
        self._numbers = {**self._numbers, **numbers}

    def enter(self, phase: str) -> None:
        self._phase, self._phase_began = phase, self._clock()

    def end(self) -> None:
        """Leave the stage."""
        self.begin("", 0)

    @contextmanager
    def within(self, phase: str) -> Iterator[None]:
        """Be in a phase while the block runs, and afterwards in the one before it."""
        before = self._phase
        self.enter(phase)
        try:
            yield
        finally:
            self.enter(before)

    def note(self, text: str) -> None:
        self._notes.append(text)

    def progress(self) -> Progress:
        now = self._clock()
        return Progress(
            stage=self._stage,
            done=self._done,
            total=self._total,
            seconds=now - (self._stage_began if self._stage else self._began),
            numbers=self._numbers,
            phase=self._phase,
            phase_seconds=now - self._phase_began,
            notes=tuple(self._notes.copy()),
        )


def write_progress(folder: Path, progress: Progress) -> None:
    atomic_write(folder / PROGRESS, json.dumps(asdict(progress)) + "\n")


def read_progress(folder: Path) -> Progress | None:
    """A run's progress; None if it has none that can be read."""
    try:
        return read_json(folder / PROGRESS, Progress, MEBIBYTE)
    except Unreadable:
        return None

"""A run's seconds, round by round, from timeline.jsonl."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlhf_lab.experiment.planning.settings import Settings, settings_of
from rlhf_lab.runs.folder import TIMELINE
from rlhf_lab.runs.timeline import GENERATION, TRAINER, WAITING, LaneSpan, read_spans
from rlhf_lab.types.errors import UserError


@dataclass(frozen=True)
class Window:
    """The trainer's lane from the start of a round to the start of the next."""

    start: float
    end: float
    spans: tuple[LaneSpan, ...]

    def seconds(self, *phases: str) -> float:
        return sum(span.seconds for span in self.spans if span.phase in phases)

    @property
    def spent(self) -> float:
        """Seconds in spans; generation of one's own lies inside `take`."""
        return sum(span.seconds for span in self.spans if not span.is_generation)

    def waiting(self, generation: Sequence[LaneSpan]) -> float:
        """Seconds of `take` until the last generator was done with the round."""
        done = max((span.end for span in generation if span.lane != TRAINER), default=0.0)
        takes = [span for span in self.spans if span.phase == WAITING]
        return sum(max(0.0, min(span.end, done) - span.start) for span in takes)


@dataclass(frozen=True)
class Round:
    """Seconds of a round: chunks, rows and trained per row; other, whatever the rows are.

    `rows` is the reference and what lies between the spans (padding, credit); `other` is syncing,
    tracking and saving, and what taking the rollouts costs when they are all there.
    """

    chunks: tuple[float, ...]
    rows: float
    trained: float
    other: float


@dataclass(frozen=True)
class Measurement:
    """A run's settings, its rounds (without the first, which warms up, where there are more than
    two: the last stands in for it), and what it took in seconds so far."""

    settings: Settings
    rounds: tuple[Round, ...]
    wall: float
    trainer_wait: float
    generator_wait: float

    @property
    def is_whole(self) -> bool:
        """Whether the run came to its end."""
        return len(self.rounds) == self.settings.recipe.num_rounds


def measured(folder: Path) -> Measurement:
    """A run's settings and seconds. Raises UserError where they were not written down."""
    settings, spans = settings_of(folder), spans_of(folder)
    trained = {span.round for span in spans if span.lane == TRAINER and span.phase == "sync"}
    generation = chunks_of_rounds([span for span in spans if span.is_generation])
    if not trained or not trained <= generation.keys():
        raise UserError(
            f"{folder / TIMELINE} has no whole round yet, or rounds without a generated chunk: "
            "let the run go on, or pass another"
        )
    rounds, waits, wall = [], [], 0.0
    for number, window in windows(spans, trained).items():
        waits.append(window.waiting(generation[number]))
        rounds.append(round_of(settings, window, generation[number], waits[-1]))
        wall = window.end
    if len(rounds) > 2:
        rounds[0] = rounds[-1]
    outside = [span for span in spans if span.is_generation and span.lane != TRAINER]
    busy = sum(max(0.0, min(span.end, wall) - span.start) for span in outside)
    idle = max(0.0, settings.num_generators * wall - busy)
    return Measurement(settings, tuple(rounds), wall, sum(waits), idle)


def chunks_of_rounds(generation: Sequence[LaneSpan]) -> defaultdict[int, list[LaneSpan]]:
    chunks: defaultdict[int, list[LaneSpan]] = defaultdict(list)
    for span in generation:
        chunks[span.round].append(span)
    return chunks


def windows(spans: Sequence[LaneSpan], trained: set[int]) -> dict[int, Window]:
    """The trainer's lane cut where rounds begin. Rounds that were not trained are left out."""
    last = max(trained)
    lane = [s for s in spans if s.lane == TRAINER and (s.is_generation or s.round <= last)]
    own = [span for span in lane if not span.is_generation]
    first: dict[int, float] = {}
    for span in own:
        first[span.round] = min(span.start, first.get(span.round, span.start))
    numbers = sorted(trained)
    starts = [first[number] for number in numbers]
    ends = [*starts[1:], max(span.end for span in own)]
    parts: list[list[LaneSpan]] = [[] for _ in numbers]
    for span in lane:
        if span.start < ends[-1]:
            parts[max(0, bisect_right(starts, span.start) - 1)].append(span)
    return {
        number: Window(start, end, tuple(part))
        for number, start, end, part in zip(numbers, starts, ends, parts, strict=True)
    }


def spans_of(folder: Path) -> list[LaneSpan]:
    """The spans of a run, generation with its chunks. Raises UserError without any."""
    spans, path = read_spans(folder), folder / TIMELINE
    if not spans:
        raise UserError(f"{path} is empty: train again, a few rounds suffice, or pass another run")
    if any(span.is_generation and span.chunk is None for span in spans):
        raise UserError(f"{path} has generation that is of no chunk: train again")
    return spans


def round_of(
    settings: Settings, window: Window, generation: Sequence[LaneSpan], wait: float
) -> Round:
    """A round's seconds, waiting and generation in the trainer's lane left out."""
    chunks: dict[int, float] = {}
    for span in generation:
        assert span.chunk is not None, "generation belongs to a chunk"
        chunks[span.chunk] = chunks.get(span.chunk, 0.0) + span.seconds
    rows = settings.chunk_rows
    reference, update = window.seconds("reference"), window.seconds("update")
    between = max(0.0, window.end - window.start - window.spent)
    inline = window.seconds(*GENERATION)
    return Round(
        chunks=tuple(chunks[number] / rows[number % len(rows)] for number in sorted(chunks)),
        rows=(reference + between) / settings.rows,
        trained=update / settings.trained_rows,
        other=max(0.0, window.spent - inline - wait - reference - update),
    )


def read_before_steps(totals: Mapping[str, Any]) -> float:
    """Tokens that the generators of a run read before they decoded: prompts, and what they read
    again. Observations of episodes are read in steps of their own. totals: a row of metrics."""
    return float(totals["total/prefill_tokens"] - totals.get("total/observed_tokens", 0))

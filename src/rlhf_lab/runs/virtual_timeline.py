"""What each lane of a virtual cluster did when, of a run of mode=virtual, in virtual seconds.

It is put together from the schedule, which has the seconds of each chunk, and from the cluster's
sums in the metrics, which are those of the moment at which a round's version is published.

Colocated generators are paused while the trainer trains and hands over. A generator first ends the
decoding step that it has begun, so each chunk of the schedule has the pauses in which it was begun.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rlhf_lab.runs.folder import METRICS, SCHEDULE
from rlhf_lab.runs.jsonl import read_rows
from rlhf_lab.runs.timeline import PAUSED, TRAINER, WAITING, LaneSpan, lanes

SUMS = WALL, TRAIN, SYNC = [f"virtual_seconds/{name}" for name in ("wall", "train", "sync")]
OF_CHUNKS = {"virtual_generator", "virtual_seconds_versions", "virtual_seconds_end"}
# Of the chunks of colocated generators, also where it is empty.
PAUSES = "virtual_seconds_pauses"


def read_virtual_spans(folder: Path) -> list[LaneSpan]:
    """The spans of a run of mode=virtual, none of other runs. The chunks that a generator writes
    at the same time lie side by side, and pauses take the whole lane."""
    rounds = {row["step"]: row for row in read_rows(folder / METRICS) if row.keys() >= {*SUMS}}
    if not rounds:
        return []
    schedule = read_rows(folder / SCHEDULE)
    chunks = [chunk_spans(row) for row in schedule if row.keys() >= OF_CHUNKS]
    trainer, work = trainer_spans(rounds), side_by_side([spans for spans in chunks if spans])
    is_colocated = any(PAUSES in row for row in schedule)
    return [*trainer, *work, *(paused_spans(trainer, work) if is_colocated else ())]


def trainer_spans(rounds: Mapping[int, Mapping[str, Any]]) -> list[LaneSpan]:
    """Waiting for each round's chunks, training on them, and handing the version over."""
    spans: list[LaneSpan] = []
    before: Mapping[str, Any] = dict.fromkeys(SUMS, 0.0)
    for number, row in rounds.items():
        trained = row[WALL] - (row[SYNC] - before[SYNC])
        begun = trained - (row[TRAIN] - before[TRAIN])
        spans.append(LaneSpan(TRAINER, WAITING, before[WALL], begun, number, number))
        spans.append(LaneSpan(TRAINER, "update", begun, trained, number, number))
        spans.append(LaneSpan(TRAINER, "sync", trained, row[WALL], number, number))
        before = row
    return spans


def chunk_spans(row: Mapping[str, Any]) -> list[LaneSpan]:
    """A chunk of the schedule: a span for each version that wrote a part of it, without pauses."""
    lane = f"generator-{row['virtual_generator']}"
    versions = row["virtual_seconds_versions"]
    ends = [second for _, second in versions[1:]] + [row["virtual_seconds_end"]]
    return [
        part
        for (version, start), end in zip(versions, ends, strict=True)
        for part in without(
            LaneSpan(lane, "generate", start, end, row["round"], int(version), row["chunk"]),
            row.get(PAUSES, ()),
        )
    ]


def without(span: LaneSpan, pauses: Sequence[Sequence[float]]) -> Iterator[LaneSpan]:
    """The parts of a span before, between and after pauses, which are in their order."""
    for start, end in pauses:
        if span.start <= start and end <= span.end:
            if start > span.start:
                yield replace(span, end=start)
            span = replace(span, start=end)
    if span.end > span.start or not pauses:
        yield span


def paused_spans(trainer: Sequence[LaneSpan], work: Sequence[LaneSpan]) -> list[LaneSpan]:
    """A pause of each generator for each update and handing over, from the end of what it was
    writing on."""
    updates = [span for span in trainer if span.phase == "update"]
    handovers = [span for span in trainer if span.phase == "sync"]
    paused = []
    for lane in lanes(work):
        ends = [0.0, *sorted(span.end for span in work if span.lane == lane)]
        for update, handover in zip(updates, handovers, strict=True):
            end = handover.end
            start = max(update.start, ends[bisect_right(ends, end) - 1])
            if start < end:
                paused.append(replace(update, lane=lane, phase=PAUSED, start=start, end=end))
    return paused


def side_by_side(chunks: Sequence[Sequence[LaneSpan]]) -> list[LaneSpan]:
    """The spans of all chunks, those of chunks that overlap in a lane in different rows of it. All
    lanes have as many rows as the fullest one needs."""
    ends: dict[str, list[float]] = {}
    placed: list[tuple[LaneSpan, int]] = []
    for chunk in sorted(chunks, key=lambda spans: (spans[0].start, spans[0].chunk)):
        rows = ends.setdefault(chunk[0].lane, [])
        row = next((row for row, end in enumerate(rows) if end <= chunk[0].start), len(rows))
        rows[row:] = [chunk[-1].end, *rows[row + 1 :]]
        placed += [(span, row) for span in chunk]
    most = max(map(len, ends.values()), default=1)
    return [replace(span, row=row, rows=most) for span, row in placed]

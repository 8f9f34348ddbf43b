"""The timeline of a run: what each lane (trainer, generators) did when.

timeline.jsonl has the seconds of this machine. The virtual seconds of a run of mode=virtual are put
together from the schedule, which has the seconds of each chunk, and from the cluster's sums in the
metrics, which are those of the moment at which a round's version is published.

Colocated generators are paused while the trainer trains and hands over. A generator first ends the
decoding step that it has begun, so each chunk of the schedule has the pauses in which it was begun.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from rlhf_lab.runs.folder import METRICS, SCHEDULE, TIMELINE
from rlhf_lab.runs.jsonl import read_rows
from rlhf_lab.runs.reading import Unreadable
from rlhf_lab.types.errors import UserError

TRAINER = "trainer"
# Units of the seconds of this machine, and of a virtual cluster's.
SECONDS, VIRTUAL_SECONDS = "s", "virtual s"
# The phase in which the trainer waits for rollouts; with the trainer as generator, it holds theirs.
WAITING = "take"
# The phase of a virtual generator while the trainer trains on its devices.
PAUSED = "paused"
GENERATION = ("generate", "score")

Interval = tuple[float, float]
OF_CHUNKS = {"virtual_generator", "virtual_seconds_versions", "virtual_seconds_end"}
# Of the chunks of colocated generators, also where it is empty.
PAUSES = "virtual_seconds_pauses"


@dataclass(frozen=True)
class LaneSpan:
    """What a lane did from start to end, in seconds since the run began. round, version: of the
    samples or of the update. chunk: of generation alone. row: where it lies in its lane, whose
    work at the same time is drawn in so many rows."""

    lane: str
    phase: str
    start: float
    end: float
    round: int
    version: int
    chunk: int | None = None
    row: int = 0
    rows: int = 1

    @property
    def seconds(self) -> float:
        return self.end - self.start

    @property
    def is_generation(self) -> bool:
        return self.phase in GENERATION


def read_spans(folder: Path) -> list[LaneSpan]:
    """The spans of a run in the order of its file. Raises UserError if it has no such file, or if a
    span ends before it begins."""
    path = folder / TIMELINE
    if not path.is_file():
        raise UserError(
            f"{folder} has no {TIMELINE}: name a run that `rlhf-lab train` made "
            "(`rlhf-lab runs` lists them)"
        )
    spans = []
    for number, row in enumerate(read_rows(path), start=1):
        if row["end"] < row["start"]:
            reason = f"it is less than start={row['start']!r}: delete the line to read the others"
            raise Unreadable(path, reason, f"line {number} key end")
        spans.append(
            LaneSpan(**{one.name: row[one.name] for one in fields(LaneSpan) if one.name in row})
        )
    return spans


def wall(spans: Sequence[LaneSpan]) -> float:
    """Seconds from the run's beginning to the end of its last span."""
    return max(span.end for span in spans)


def lanes(spans: Sequence[LaneSpan]) -> list[str]:
    """The trainer, then the generators by number."""
    names = {span.lane for span in spans}
    return sorted(names, key=lambda lane: (lane != TRAINER, len(lane), lane))


def idle(spans: Sequence[LaneSpan], window: Interval) -> dict[str, list[Interval]]:
    """Per lane, the parts of the window in which nothing but waiting is recorded."""
    gaps: dict[str, list[Interval]] = {lane: [] for lane in lanes(spans)}
    reached = dict.fromkeys(gaps, window[0])
    for span in sorted(spans, key=lambda span: span.start):
        if span.phase == WAITING:
            continue
        start = min(span.start, window[1])
        if start > reached[span.lane]:
            gaps[span.lane].append((reached[span.lane], start))
        reached[span.lane] = max(reached[span.lane], min(span.end, window[1]))
    for lane, end in reached.items():
        if end < window[1]:
            gaps[lane].append((end, window[1]))
    return gaps


def idle_shares(spans: Sequence[LaneSpan]) -> dict[str, float]:
    """Per lane, the share of the run's wall-clock in which it did nothing but wait."""
    total = wall(spans)
    return {
        lane: sum(end - start for start, end in gaps) / total
        for lane, gaps in idle(spans, (0.0, total)).items()
    }


def has_pauses(spans: Sequence[LaneSpan]) -> bool:
    return any(span.phase == PAUSED for span in spans)


def paused_shares(spans: Sequence[LaneSpan]) -> dict[str, float]:
    """Per lane that was paused, the share of the run's wall-clock in which it was."""
    total = wall(spans)
    paused = [span for span in spans if span.phase == PAUSED]
    return {
        lane: sum(span.seconds for span in paused if span.lane == lane) / total
        for lane in lanes(paused)
    }


def shares_text(shares: Mapping[str, float]) -> str:
    """Shares by lane in words, such as `trainer 10%, generator-0 25%`."""
    return ", ".join(f"{lane} {100 * share:.0f}%" for lane, share in shares.items())


def visible(spans: Sequence[LaneSpan], window: Interval) -> list[LaneSpan]:
    """Spans that reach into the window, outer ones before those that lie inside them."""
    seen = [span for span in spans if span.end >= window[0] and span.start <= window[1]]
    return sorted(seen, key=lambda span: (span.start, -span.end, span.phase != WAITING))


def round_starts(spans: Sequence[LaneSpan], window: Interval) -> dict[int, float]:
    """When the trainer, or the first generator without one, began its rounds in the window; at
    most 16 of them, evenly chosen."""
    starts: dict[int, float] = {}
    lane = lanes(spans)[0]
    for span in sorted(spans, key=lambda span: span.start):
        if span.lane == lane:
            starts.setdefault(span.round, span.start)
    inside = {number: at for number, at in starts.items() if window[0] <= at < window[1]}
    every = math.ceil(len(inside) / 16) or 1
    return {number: at for number, at in inside.items() if number % every == 0}


def window_of(spans: Sequence[LaneSpan], first: int, last: int) -> Interval:
    """When the trainer was at rounds first to last; where it has none, when anyone was."""
    chosen = [span for span in spans if first <= span.round <= last]
    if not chosen:
        low, high = min(span.round for span in spans), max(span.round for span in spans)
        raise UserError(
            f"--rounds {first}:{last} holds none of the run's rounds: choose within {low}:{high}"
        )
    of_trainer = [span for span in chosen if span.lane == TRAINER] or chosen
    window = (min(span.start for span in of_trainer), wall(of_trainer))
    if window[0] == window[1]:
        raise UserError(f"--rounds {first}:{last} took no time: choose more rounds")
    return window


SUMS = WALL, TRAIN, SYNC = [f"virtual_seconds/{name}" for name in ("wall", "train", "sync")]


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

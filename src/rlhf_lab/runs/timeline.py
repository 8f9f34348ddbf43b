"""The timeline of a run, timeline.jsonl: what each lane (trainer, generators) did when.

The only reader of that file: `rlhf-lab timeline` draws its spans, the planner measures them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from rlhf_lab.runs.folder import TIMELINE
from rlhf_lab.runs.jsonl import read_rows
from rlhf_lab.runs.reading import Unreadable
from rlhf_lab.types.errors import UserError

TRAINER = "trainer"
# Units of the seconds of this machine, and of a virtual cluster's.
SECONDS, VIRTUAL_SECONDS = "s", "virtual s"
# The phase in which the trainer waits for rollouts; with the trainer as generator, it holds theirs.
WAITING = "take"
# The phase of a virtual generator whose devices the trainer trains on.
PAUSED = "paused"
GENERATION = ("generate", "score")

Interval = tuple[float, float]


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
    """The spans of a run in the order of its file. Raises UserError if it has no such file."""
    path = folder / TIMELINE
    if not path.is_file():
        raise UserError(
            f"{folder} has no {TIMELINE}: name a run that `rlhf-lab train` made "
            "(`rlhf-lab runs` lists them)"
        )
    return [span_of(row, path, number) for number, row in enumerate(read_rows(path), start=1)]


def span_of(row: Mapping[str, Any], path: Path, number: int) -> LaneSpan:
    """A row as a span. Raises Unreadable if it ends before it begins."""
    if row["end"] < row["start"]:
        reason = f"it is less than start={row['start']!r}: delete the line to read the others"
        raise Unreadable(path, reason, f"line {number} key end")
    known: dict[str, Any] = {
        field.name: row[field.name] for field in fields(LaneSpan) if field.name in row
    }
    return LaneSpan(**known)


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

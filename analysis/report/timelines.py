"""Draw some rounds of one run of a few conditions, in one time scale: who worked, who waited."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from markupsafe import Markup

from rlhf_lab.runs.folder import TIMELINE
from rlhf_lab.runs.timeline import TRAINER, LaneSpan, idle_shares, lanes, read_spans, visible, wall
from rlhf_lab.runs.timeline_colours import OTHER, OTHER_LABEL, phase_colours
from rlhf_lab.runs.timeline_svg import chart
from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.figures.round_seconds import COLUMNS, sums_of
from rlhf_lab_analysis.figures.timelines import measured_lanes
from rlhf_lab_analysis.report.groups import Group
from rlhf_lab_analysis.words import number_text

# Of a page, of a run, and of a run's drawing.
MOST_RUNS, ROUNDS, MOST_SPANS = 8, 6, 240
# Of the seconds of two drawings in one scale.
LARGEST_RATIO = 5
MEASURED = "as it was recorded"
LAID_OUT = "laid out from the mean seconds of its rounds"
LEGEND = [*phase_colours(), (OTHER_LABEL, OTHER)]


@dataclass(frozen=True)
class DrawnTimeline:
    """Some rounds of a run. group: the number of its condition in the page. note: what they are,
    and how idle the lanes were over the whole run."""

    group: int
    title: str
    note: str
    lanes: Sequence[str]
    drawing: Markup


@dataclass(frozen=True)
class Piece:
    """Spans of some rounds, which begin at 0. idle: shares of the whole run, by lane."""

    spans: Sequence[LaneSpan]
    rounds: tuple[int, int]
    idle: str
    source: str

    @property
    def seconds(self) -> float:
        return wall(self.spans)


def timelines(groups: Sequence[Group], ranked: Sequence[int]) -> list[DrawnTimeline]:
    """Drawings of the first conditions in `ranked` that have seconds, all as wide as the longest
    lasts; those that would be too short to see beside the first are left out."""
    pieces: list[tuple[int, Piece]] = []
    for place in ranked:
        piece = piece_of(groups[place])
        if piece is None or (pieces and not is_visible(piece, [one for _, one in pieces])):
            continue
        pieces.append((place, piece))
        if len(pieces) == MOST_RUNS:
            break
    longest = max((piece.seconds for _, piece in pieces), default=0.0)
    return [
        draw(place, groups[place], piece, longest, order)
        for order, (place, piece) in enumerate(pieces)
    ]


def is_visible(piece: Piece, others: Sequence[Piece]) -> bool:
    """Whether neither this one nor another is too short in the scale of all."""
    seconds = [one.seconds for one in (piece, *others)]
    return max(seconds) < LARGEST_RATIO * min(seconds)


def draw(place: int, group: Group, piece: Piece, seconds: float, order: int) -> DrawnTimeline:
    first, end = piece.rounds
    note = f"rounds {first} to {end} of seed {group.cell.seeds[0]}, {piece.source}: "
    note += f"{number_text(piece.seconds)} s"
    if piece.idle:
        note += f"; idle in the whole run: {piece.idle}"
    label, window = f"{group.title}: {note}", (0.0, seconds)
    drawing = chart(piece.spans, window, label, f"idle-{order}", is_cut=True)
    return DrawnTimeline(place, group.title, note, lanes(piece.spans), Markup(drawing))


def piece_of(group: Group) -> Piece | None:
    """Of the first seed: from its recorded timeline, else from its table of rounds; None where
    there is neither."""
    seed = group.cell.seeds[0]
    folder = Path(str(group.cell.runs[seed]["place"]))
    if (folder / TIMELINE).is_file():
        spans = recorded(folder)
        if spans:
            shares = idle_shares(spans)
            idle = ", ".join(f"{lane} {100 * share:.0f}%" for lane, share in shares.items())
            return middle(spans, idle, MEASURED)
    return laid_out(group, seed)


def recorded(folder: Path) -> list[LaneSpan]:
    """The spans of a run; none of a file that is damaged, which is a finding of its own."""
    try:
        spans = read_spans(folder)
    except UserError:
        return []
    return spans if spans and wall(spans) > 0 else []


def laid_out(group: Group, seed: int) -> Piece | None:
    rows = group.cell.recorded[seed]
    if len(rows) < 2 or not all(name in rows and rows[name].notna().all() for name in COLUMNS):
        return None
    spans = measured_lanes(group.cell, sums_of(group.cell, seed))
    if not spans or wall(spans) <= 0:
        return None
    named = [replace(s, phase="update") if s.phase == "train" else s for s in spans]
    return middle(named, "", LAID_OUT)


def middle(spans: Sequence[LaneSpan], idle: str, source: str) -> Piece:
    """A few rounds from the middle of a run, fewer where they have very many spans."""
    lane = TRAINER if TRAINER in {span.lane for span in spans} else lanes(spans)[0]
    rounds = sorted({span.round for span in spans if span.lane == lane})
    for number in range(min(ROUNDS, len(rounds)), 0, -1):
        begin = (len(rounds) - number) // 2
        shown = rounds[begin : begin + number]
        of_lane = [s for s in spans if s.lane == lane and shown[0] <= s.round <= shown[-1]]
        window = (min(s.start for s in of_lane), max(s.end for s in of_lane))
        kept = [s for s in visible(spans, window) if s.lane != lane or s in of_lane]
        seen = [clipped(span, window) for span in kept]
        if len(seen) <= MOST_SPANS:
            break
    return Piece([s for s in seen if s.end > s.start], (shown[0], shown[-1]), idle, source)


def clipped(span: LaneSpan, window: tuple[float, float]) -> LaneSpan:
    """What of a span lies in the window, in seconds since that began."""
    start, end = max(span.start, window[0]), min(span.end, window[1])
    return replace(span, start=start - window[0], end=max(start, end) - window[0])

"""Draw some rounds of one run of a few conditions, in one time scale: who worked, who waited.

Runs of mode=virtual are drawn in virtual seconds, in one scale among themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from markupsafe import Markup

from rlhf_lab.runs.folder import TIMELINE
from rlhf_lab.runs.timeline import (
    SECONDS,
    TRAINER,
    VIRTUAL_SECONDS,
    LaneSpan,
    has_pauses,
    idle_shares,
    lanes,
    paused_shares,
    read_spans,
    read_virtual_spans,
    shares_text,
    wall,
)
from rlhf_lab.runs.timeline_svg import chart, phase_colours
from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.plots.round_seconds import COLUMNS, sums_of
from rlhf_lab_analysis.plots.timelines import clipped, measured_lanes
from rlhf_lab_analysis.report.groups import Group
from rlhf_lab_analysis.rounding import number_text
from rlhf_lab_analysis.words import VIRTUAL

# Of a page, of a run, and of a run's drawing.
MOST_RUNS, ROUNDS, MOST_SPANS = 8, 6, 240
# Generators whose idle times are named one by one.
MOST_NAMED = 4
# Of the seconds of two drawings in one scale.
LARGEST_RATIO = 5
MEASURED = "as it was recorded"
SIMULATED = "by the clock of its virtual cluster"
LAID_OUT = "laid out from the mean seconds of its rounds"


@dataclass(frozen=True)
class DrawnTimeline:
    """Some rounds of a run. group: the number of its condition in the page. note: what they are,
    and how idle the lanes were over the whole run. has_pauses: whether some lane is paused."""

    group: int
    title: str
    note: str
    lanes: Sequence[str]
    drawing: Markup
    has_pauses: bool


@dataclass(frozen=True)
class Piece:
    """Spans of some rounds, which begin at 0. shares: of the whole run, in which each lane was idle
    or paused."""

    spans: Sequence[LaneSpan]
    rounds: tuple[int, int]
    shares: str
    source: str
    unit: str = SECONDS

    @property
    def seconds(self) -> float:
        return wall(self.spans)


def timelines(groups: Sequence[Group], ranked: Sequence[int]) -> list[list[DrawnTimeline]]:
    """Drawings of the first conditions in `ranked` that have seconds: those of this machine's
    clock, then those of virtual clusters, where there are any. Those of one clock share a scale;
    one that would be too short to see beside the others is left out."""
    by_clock: dict[str, list[tuple[int, Piece]]] = {SECONDS: [], VIRTUAL_SECONDS: []}
    for place in ranked:
        # Files are read of as many runs as are drawn.
        if len(by_clock[clock_of(groups[place])]) == MOST_RUNS:
            continue
        if (piece := piece_of(groups[place])) is not None:
            own = by_clock[piece.unit]
            seconds = [piece.seconds, *(other.seconds for _, other in own)]
            if max(seconds) < LARGEST_RATIO * min(seconds):
                own.append((place, piece))
    return [
        [
            draw(place, groups[place], piece, max(p.seconds for _, p in own), f"{number}-{place}")
            for place, piece in own
        ]
        for number, own in enumerate(by_clock.values())
        if own
    ]


def draw(place: int, group: Group, piece: Piece, seconds: float, name: str) -> DrawnTimeline:
    """name: of the drawing, once in a page."""
    first, end = piece.rounds
    note = f"rounds {first} to {end} of seed {group.cell.seeds[0]}, {piece.source}: "
    note += f"{number_text(piece.seconds)} {piece.unit}"
    if piece.shares:
        note += f"; {piece.shares}"
    label, window = f"{group.title}: {note}", (0.0, seconds)
    drawing = chart(piece.spans, window, label, f"idle-{name}", is_cut=True, unit=piece.unit)
    shown = lanes(piece.spans)
    return DrawnTimeline(place, group.title, note, shown, Markup(drawing), has_pauses(piece.spans))


def clock_of(group: Group) -> str:
    """The unit of the seconds that a condition is drawn in, from its tables."""
    rows = group.cell.recorded[group.cell.seeds[0]]
    return VIRTUAL_SECONDS if VIRTUAL in rows and rows[VIRTUAL].notna().any() else SECONDS


def piece_of(group: Group) -> Piece | None:
    """Of the first seed: from its virtual cluster, else its recorded timeline, else its table of
    rounds; None where there is none of them."""
    seed = group.cell.seeds[0]
    folder = Path(str(group.cell.runs[seed]["place"]))
    is_virtual = clock_of(group) == VIRTUAL_SECONDS
    if is_virtual and (spans := recorded(folder, read_virtual_spans)):
        return middle(spans, shares_of_run(spans), SIMULATED, VIRTUAL_SECONDS)
    if (folder / TIMELINE).is_file() and (spans := recorded(folder, read_spans)):
        return middle(spans, shares_of_run(spans), MEASURED)
    return laid_out(group, seed)


def shares_of_run(spans: Sequence[LaneSpan]) -> str:
    """How idle each lane was, and how long it was paused."""
    text = f"idle in the whole run: {few_shares_text(idle_shares(spans))}"
    paused = few_shares_text(paused_shares(spans))
    return f"{text}; paused: {paused}" if paused else text


def few_shares_text(shares: Mapping[str, float]) -> str:
    """The share of each lane; of many generators, the least and the largest one."""
    generators = [share for lane, share in shares.items() if lane != TRAINER]
    if len(generators) <= MOST_NAMED:
        return shares_text(shares)
    ends = f"{100 * min(generators):.0f}% to {100 * max(generators):.0f}%"
    text = f"{len(generators)} generators {ends}"
    return f"{shares_text({TRAINER: shares[TRAINER]})}, {text}" if TRAINER in shares else text


def legend(timelines: Sequence[Sequence[DrawnTimeline]]) -> list[tuple[str, str]]:
    """Labels and colours of the phases, and of pauses if some timeline has them."""
    return phase_colours(any(one.has_pauses for clock in timelines for one in clock))


def recorded(folder: Path, read: Callable[[Path], list[LaneSpan]]) -> list[LaneSpan]:
    """The spans of a run; none of a damaged file, which the findings list."""
    try:
        spans = read(folder)
    except UserError:
        return []
    return spans if spans and wall(spans) > 0 else []


def laid_out(group: Group, seed: int) -> Piece | None:
    """A few rounds by the seconds of the tables."""
    rows = group.cell.recorded[seed]
    if len(rows) < 2 or not all(name in rows and rows[name].notna().all() for name in COLUMNS):
        return None
    spans = measured_lanes(group.cell, sums_of(group.cell, seed), ROUNDS)
    if not spans or wall(spans) <= 0:
        return None
    named = [replace(s, phase="update") if s.phase == "train" else s for s in spans]
    return middle(named, "", LAID_OUT)


def middle(spans: Sequence[LaneSpan], shares: str, source: str, unit: str = SECONDS) -> Piece:
    """A few rounds from the middle of a run, fewer where they have very many spans."""
    lane = TRAINER if TRAINER in {span.lane for span in spans} else lanes(spans)[0]
    rounds = sorted({span.round for span in spans if span.lane == lane})
    for number in range(min(ROUNDS, len(rounds)), 0, -1):
        begin = (len(rounds) - number) // 2
        shown = rounds[begin : begin + number]
        own = [s for s in spans if s.lane == lane and shown[0] <= s.round <= shown[-1]]
        others = [s for s in spans if s.lane != lane]
        start, end = min(s.start for s in own), max(s.end for s in own)
        drawn = clipped([*own, *others], start, end)
        if len(drawn) <= MOST_SPANS:
            break
    return Piece(drawn, (shown[0], shown[-1]), shares, source, unit)

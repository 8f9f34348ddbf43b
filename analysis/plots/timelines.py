"""Timelines of trainer and generator from the ledger's measured seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from rlhf_lab.runs.timeline import LaneSpan
from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.comparison.cell import Cell
from rlhf_lab_analysis.plots.round_seconds import (
    COLUMNS,
    GENERATE,
    SCORE,
    SHOWN_ROUNDS,
    TRAIN,
    WAIT,
    WALL,
    bound,
    middle_rounds,
    sums_of,
)
from rlhf_lab_analysis.plots.style import GREY, HUES, Style

# Rows of END_ROW that two lanes take.
LANES = 3
BLUE, ORANGE, GREEN = HUES[:3]
# Colour, hatching and words of each phase.
PHASES = {
    "generate": (BLUE, "", "generate samples"),
    "score": (GREEN, "....", "score them"),
    "train": (ORANGE, "////", "update the policy"),
    "other": (GREY, "xxxx", "other"),
}
IDLE: dict[str, Any] = {
    "facecolor": "#f3f4f6", "edgecolor": "#9ca3af", "hatch": "////", "linewidth": 0,
}  # fmt: skip
HEIGHT = 0.75
MODES_WITH_GENERATOR = ("async", "free", "partial")


def recorded(cells: Sequence[Cell]) -> list[Cell]:
    """The conditions whose rounds have all seconds. Raises UserError if there is none."""
    found = [
        cell for cell in cells if all(set(COLUMNS) <= set(rows) for rows in cell.recorded.values())
    ]
    if not found:
        raise UserError(f"--timeline: no run has recorded {', '.join(COLUMNS)}")
    return found


def draw(axes: Axes, cells: Mapping[str, Cell], style: Style) -> list[dict[str, Any]]:
    """The lanes of the first seed of each condition, below each other, those of sync first; the
    rows of the data."""
    rows: list[dict[str, Any]] = []
    names: list[str] = []
    for name, cell in sorted(cells.items(), key=lambda one: one[1].parts["mode"] != "sync"):
        sums = sums_of(cell, cell.seeds[0])
        spans = measured_lanes(cell, sums)
        about = {"condition": name, "seed": cell.seeds[0]}
        sides = bound(middle_rounds(sums))
        rows += [
            {**about, "lane": one.lane, "phase": one.phase, "round": one.round,
             "start": one.start, "end": one.end, "bound": sides}
            for one in spans if one.end > one.start
        ]  # fmt: skip
        lanes = draw_lanes(axes, spans, len(names))
        names += [f"{style.text(name)}: {lane}" for lane in lanes]
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_xlabel("seconds")
    return rows


def draw_lanes(axes: Axes, spans: Sequence[LaneSpan], first: int = 0) -> list[str]:
    """A row for each lane from row `first` on, idle between its spans; the lanes."""
    lanes = sorted({span.lane for span in spans})
    for row, lane in enumerate(lanes):
        start = min(one.start for one in spans if one.lane == lane)
        end = max(one.end for one in spans if one.lane == lane)
        axes.barh(first + row, end - start, left=start, height=HEIGHT, **IDLE)
    for one in spans:
        if one.end > one.start:
            colour, hatch, _ = PHASES[one.phase]
            axes.barh(
                first + lanes.index(one.lane), one.end - one.start, left=one.start, height=HEIGHT,
                color=colour, hatch=hatch, edgecolor="white", linewidth=0.4,
            )  # fmt: skip
    return lanes


def legend(figure: Figure) -> None:
    """The phases below the panels."""
    patches = [Patch(fc=c, hatch=h, ec="white", label=text) for c, h, text in PHASES.values()]
    patches.append(Patch(label="idle", **IDLE))
    figure.legend(handles=patches, loc="outside lower center", ncols=len(patches))


def measured_lanes(cell: Cell, sums: pd.DataFrame, count: int = SHOWN_ROUNDS) -> list[LaneSpan]:
    """So many rounds from the middle of a run in the lanes that it had."""
    rounds = middle_rounds(sums, count)
    if cell.parts["mode"] not in MODES_WITH_GENERATOR:
        return consecutive(rounds)
    return concurrent(sums, rounds, cell.parts["max_staleness"] or 0)


def clipped(spans: Sequence[LaneSpan], start: float, end: float) -> list[LaneSpan]:
    """What of the spans lies between these seconds, in seconds since the first of them."""
    return [
        replace(one, start=max(one.start, start) - start, end=min(one.end, end) - start)
        for one in spans
        if one.end > start and one.start < end
    ]


def consecutive(rounds: pd.DataFrame) -> list[LaneSpan]:
    """The trainer does everything, one after the other; what is left of a round is other."""
    spans, now = [], 0.0
    for number, row in zip(rounds.index, rounds.to_dict("records"), strict=True):
        parts = {"generate": row[GENERATE], "score": row[SCORE], "train": row[TRAIN]}
        parts["other"] = max(0.0, row[WALL] - sum(parts.values()))
        for phase, seconds in parts.items():
            spans.append(span("trainer", phase, now, now + seconds, int(number)))
            now += seconds
    return spans


def concurrent(sums: pd.DataFrame, rounds: pd.DataFrame, staleness: int) -> list[LaneSpan]:
    """The trainer's lane as measured, beside it a generator that begins a round's samples when it
    is free and the version is there that S allows. sums: the ledger's, of all rounds."""
    spans, free = [], 0.0
    ready = sums[WALL].to_numpy()
    for index, row in zip(rounds.index, rounds.to_dict("records"), strict=True):
        number, version = int(index), int(index) - staleness - 1
        start = max(free, float(ready[version]) if version >= 0 else 0.0)
        scored, free = start + row[GENERATE], start + row[GENERATE] + row[SCORE]
        end = float(ready[number])
        update = end - row[WALL] + row[WAIT]
        trained = update + row[TRAIN]
        spans += [
            span("generator", "generate", start, scored, number),
            span("generator", "score", scored, free, number),
            span("trainer", "train", update, trained, number),
            span("trainer", "other", trained, end, number),
        ]
    first = min(each.start for each in spans)
    return [replace(each, start=each.start - first, end=each.end - first) for each in spans]


def span(lane: str, phase: str, start: float, end: float, number: int) -> LaneSpan:
    """A span of a round, whose samples and update have its number."""
    return LaneSpan(lane, phase, start, end, round=number, version=number)

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
# Colour and hatching of each phase.
PHASES = {
    "generate": (BLUE, ""),
    "score": (GREEN, "...."),
    "train": (ORANGE, "////"),
    "other": (GREY, "xxxx"),
}
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
    """The lanes of the first seed of each condition, below each other; the rows of the data."""
    rows: list[dict[str, Any]] = []
    names: list[str] = []
    for name, cell in cells.items():
        sums = sums_of(cell, cell.seeds[0])
        spans = measured_lanes(cell, sums)
        lanes = sorted({each.lane for each in spans})
        for each in spans:
            place = len(names) + lanes.index(each.lane)
            if each.end > each.start:
                colour, hatch = PHASES[each.phase]
                axes.barh(
                    place, each.end - each.start, left=each.start, height=0.75, color=colour,
                    hatch=hatch, edgecolor="white", linewidth=0.4,
                )  # fmt: skip
                rows.append({
                    "condition": name, "seed": cell.seeds[0], "lane": each.lane,
                    "phase": each.phase, "round": each.round, "start": each.start,
                    "end": each.end, "bound": bound(middle_rounds(sums)),
                })  # fmt: skip
        names += [f"{style.text(name)}: {lane}" for lane in lanes]
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_xlabel("seconds")
    return rows


def legend(figure: Figure) -> None:
    """The phases below the panels."""
    patches = [Patch(color=c, hatch=h, ec="white") for c, h in PHASES.values()]
    figure.legend(patches, [*PHASES], loc="outside lower center", ncols=len(PHASES))


def measured_lanes(cell: Cell, sums: pd.DataFrame) -> list[LaneSpan]:
    """A few rounds of a run in the lanes that it had."""
    rounds = middle_rounds(sums)
    if cell.parts["mode"] not in MODES_WITH_GENERATOR:
        return consecutive(rounds)
    return concurrent(sums, rounds, cell.parts["max_staleness"] or 0)


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

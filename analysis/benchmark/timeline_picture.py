"""Draw sync beside async in one time scale, from the seconds of the benchmark's first seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from rlhf_lab.runs.timeline import LaneSpan
from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.comparison.cell import Cell
from rlhf_lab_analysis.comparison.selection import Selection
from rlhf_lab_analysis.plots.round_seconds import sums_of
from rlhf_lab_analysis.plots.style import METADATA, Style, on_paper
from rlhf_lab_analysis.plots.timelines import PHASES, concurrent, consecutive

SWEEP, MODEL, MODES = "sync_async_nano", "nano_s", ("sync", "async")
# Rounds of sync that fill the picture; of async so many are laid out, and those in view are drawn.
SYNC_ROUNDS, ASYNC_ROUNDS = 6, 24
PHASE_WORDS = {
    "generate": "generate samples",
    "score": "score them",
    "train": "update the policy",
    "other": "other",
}
IDLE: dict[str, Any] = {
    "facecolor": "#f3f4f6", "edgecolor": "#9ca3af", "hatch": "////", "linewidth": 0,
}  # fmt: skip
DPI = 150


def runs_of_modes(selection: Selection) -> tuple[Cell, Cell]:
    """The conditions sync and async. Raises UserError where the tables lack one."""
    found = []
    for mode in MODES:
        some = selection.only(sweep=SWEEP, model=MODEL, mode=mode).cells
        if not some:
            raise UserError(f"the tables have no mode={mode} of {SWEEP} with model={MODEL}")
        found.append(some[0])
    return found[0], found[1]


def middle(sums: pd.DataFrame, count: int) -> pd.DataFrame:
    """Seconds of so many rounds from the middle of a run."""
    begin = (len(sums) - count) // 2
    return sums.diff().iloc[begin : begin + count]


def sync_spans(cell: Cell) -> list[LaneSpan]:
    """Some rounds of sync, numbered from 1."""
    rounds = middle(sums_of(cell, cell.seeds[0]), SYNC_ROUNDS)
    return numbered_from(consecutive(rounds), int(rounds.index[0]))


def async_spans(cell: Cell, end: float) -> list[LaneSpan]:
    """As many seconds of async, from the begin of an update on; round 1 is that of this update."""
    sums = sums_of(cell, cell.seeds[0])
    rounds = middle(sums, ASYNC_ROUNDS)
    spans = concurrent(sums, rounds, cell.parts["max_staleness"])
    first = int(rounds.index[2])
    start = next(s.start for s in spans if s.phase == "train" and s.round == first)
    shifted = [replace(s, start=s.start - start, end=s.end - start) for s in spans]
    seen = [s for s in shifted if s.end > 0 and s.start < end]
    clipped = [replace(s, start=max(0.0, s.start), end=min(s.end, end)) for s in seen]
    return numbered_from(clipped, first)


def numbered_from(spans: Sequence[LaneSpan], first: int) -> list[LaneSpan]:
    return [replace(span, round=span.round - first + 1) for span in spans]


def timeline_picture(selection: Selection) -> Figure:
    """A panel for each mode over the same seconds."""
    sync, concurrent_run = runs_of_modes(selection)
    above = sync_spans(sync)
    end = max(span.end for span in above)
    below = async_spans(concurrent_run, end)
    figure = Figure(figsize=(9.0, 3.2), layout="constrained")
    panels = figure.subplots(2, 1, sharex=True, height_ratios=(1, 1.75))
    for mode, axes, spans in zip(MODES, panels, (above, below), strict=True):
        draw_lanes(axes, spans, end)
        done = max(s.round for s in spans if s.phase == "other")
        text = f"mode={mode}: {done} updates in {end:.2f} s"
        axes.set_title(text, loc="left", fontsize=10, fontweight="bold")
    panels[-1].set_xlim(0.0, end)
    panels[-1].set_xlabel("seconds, from the middle of a run (numbers: round of the samples)")
    patches = [
        Patch(facecolor=colour, hatch=hatch, edgecolor="white", label=PHASE_WORDS[phase])
        for phase, (colour, hatch) in PHASES.items()
    ]
    patches.append(Patch(label="idle", **IDLE))
    figure.legend(handles=patches, loc="outside lower center", ncols=len(patches), frameon=False)
    return figure


def draw_lanes(axes: Axes, spans: Sequence[LaneSpan], end: float) -> None:
    """A row for each lane: bars with the number of their round, idle time hatched."""
    lanes = sorted({span.lane for span in spans})
    for row, lane in enumerate(lanes):
        axes.barh(row, end, height=0.74, **IDLE)
        for span in spans:
            if span.lane == lane and span.seconds > 0:
                draw_bar(axes, row, span)
    axes.set_yticks(range(len(lanes)), lanes, fontsize=9)
    axes.set_ylim(len(lanes) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.spines[["left", "top", "right"]].set_visible(False)


def draw_bar(axes: Axes, row: int, span: LaneSpan) -> None:
    colour, hatch = PHASES[span.phase]
    axes.barh(
        row, span.seconds, left=span.start, height=0.74,
        color=colour, hatch=hatch, edgecolor="white", linewidth=0.5,
    )  # fmt: skip
    if span.phase in ("generate", "train") and span.seconds > 0.02:
        axes.text(
            (span.start + span.end) / 2, row, str(span.round), ha="center", va="center",
            fontsize=9, fontweight="bold", color="black" if hatch else "white",
            bbox={"boxstyle": "round,pad=0.15", "fc": colour, "ec": "none"},
        )  # fmt: skip


def write_timeline_picture(selection: Selection, path: Path) -> Path:
    """Write the picture as PNG; equal tables give equal bytes."""
    with on_paper(Style()):
        picture = timeline_picture(selection)
        picture.savefig(path, dpi=DPI, metadata=METADATA["png"])
    return path

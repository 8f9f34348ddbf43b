"""Draw sync beside async in one time scale, from the seconds of the benchmark's first seed."""

from __future__ import annotations

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rlhf_lab.runs.timeline import LaneSpan
from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.comparison.cell import Cell
from rlhf_lab_analysis.comparison.selection import Selection
from rlhf_lab_analysis.plots import timelines
from rlhf_lab_analysis.plots.round_seconds import sums_of
from rlhf_lab_analysis.plots.style import METADATA, Style, on_paper

SWEEP, MODEL, MODES = "sync_async_nano", "nano_s", ("sync", "async")
# Rounds of sync that fill the picture; of async so many are laid out, and those in view are drawn.
SYNC_ROUNDS, ASYNC_ROUNDS = 6, 24
# A span that is shorter has no room for the number of its round.
SHORTEST = 0.01
DPI = 150


def spans_of_modes(selection: Selection) -> tuple[list[LaneSpan], list[LaneSpan]]:
    """Rounds of sync, numbered from 1, and as many seconds of async from the begin of an update
    on, whose round is 1. Raises UserError where the tables lack a mode."""
    sync, concurrent = (cell_of(selection, mode) for mode in MODES)
    above = timelines.measured_lanes(sync, sums_of(sync, sync.seeds[0]), SYNC_ROUNDS)
    sums = sums_of(concurrent, concurrent.seeds[0])
    below = timelines.measured_lanes(concurrent, sums, ASYNC_ROUNDS)
    updates = [span for span in below if span.phase == "train"]
    start, end = updates[2].start, max(span.end for span in above)
    return above, timelines.clipped(below, start, start + end)


def cell_of(selection: Selection, mode: str) -> Cell:
    found = selection.only(sweep=SWEEP, model=MODEL, mode=mode).cells
    if not found:
        raise UserError(f"the tables have no mode={mode} of {SWEEP} with model={MODEL}")
    return found[0]


def write_timeline_picture(selection: Selection, path: Path) -> Path:
    """Write a panel for each mode over the same seconds as PNG; equal tables give equal bytes."""
    both = spans_of_modes(selection)
    end = max(span.end for span in both[0])
    with on_paper(Style(font=9)):
        figure = Figure(figsize=(9.0, 3.2), layout="constrained")
        panels = figure.subplots(2, 1, sharex=True, height_ratios=(1, 1.75))
        for mode, axes, spans in zip(MODES, panels, both, strict=True):
            draw_mode(axes, mode, spans, end)
        panels[-1].set_xlim(0.0, end)
        panels[-1].set_xlabel("seconds, from the middle of a run (numbers: round of the samples)")
        timelines.legend(figure)
        figure.savefig(path, dpi=DPI, metadata=METADATA["png"])
    return path


def draw_mode(axes: Axes, mode: str, spans: list[LaneSpan], end: float) -> None:
    """The lanes of a mode, with the number of each round, and how many updates it made."""
    lanes = timelines.draw_lanes(axes, spans)
    first = min(span.round for span in spans if span.phase == "train") - 1
    for one in spans:
        if one.phase in ("generate", "train") and one.seconds > SHORTEST:
            axes.text(
                (one.start + one.end) / 2, lanes.index(one.lane), str(one.round - first),
                ha="center", va="center", fontweight="bold",
                bbox={"boxstyle": "round,pad=0.15", "fc": "white", "ec": "none"},
            )  # fmt: skip
    done = max(span.round for span in spans if span.phase == "other") - first
    axes.set_title(f"mode={mode}: {done} updates in {end:.2f} s", fontweight="bold")
    axes.set_yticks(range(len(lanes)), lanes)
    axes.set_ylim(len(lanes) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)

"""Find why the seconds of conditions are not to be compared: runs that shared a machine."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any

from rlhf_lab.runs.trackers.console import counted
from rlhf_lab_analysis.comparison.cell import Cell
from rlhf_lab_analysis.words import DEVICE_HOURS, WALL

# Axes that a second run on the same machine makes longer.
TIMES = (WALL, DEVICE_HOURS)
# Starts are recorded in whole seconds.
RESOLUTION = 1.0


def why_not_comparable(cells: Sequence[Cell]) -> str:
    """Why the wall-clock of these conditions, and with it their device-hours, is no comparison:
    runs of several machines, or that ran beside each other; empty if nothing is known against it.
    """
    spans = [span for cell in cells for span in spans_of(cell)]
    machines = {machine for machine, *_ in spans if machine}
    if len(machines) > 1:
        return f"runs of {counted(len(machines), 'machine')}"
    beside = overlapping([(start, end) for _, start, end in spans])
    return f"{beside} of {counted(len(spans), 'run')} ran beside others" if beside else ""


def spans_of(cell: Cell) -> list[tuple[str, float, float]]:
    """The machine of each run, and from when to when it trained, in seconds; without a recorded
    start nothing is known. Of several runs of a stage seed these are of the first."""
    wall, found = cell.last_recorded(WALL), []
    for seed, row in cell.runs.items():
        if seed in wall and (start := seconds_of(row.get("started"))) is not None:
            found.append((str(row.get("machine") or ""), start, start + wall[seed]))
    return found


def seconds_of(text: Any) -> float | None:
    """A time as it is recorded, in seconds; None if there is none."""
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except ValueError:
        return None


def overlapping(spans: Sequence[tuple[float, float]]) -> int:
    """How many spans begin before one of those before them ends."""
    ordered, latest, found = sorted(spans), -float("inf"), 0
    for (_, end), (start, _) in pairwise(ordered):
        latest = max(latest, end)
        found += start < latest - RESOLUTION
    return found

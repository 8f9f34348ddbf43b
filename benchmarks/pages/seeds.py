"""Runs that a study compares, and means over their seeds as texts."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from statistics import fmean

from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.comparison.selection import Selection, cells
from rlhf_lab_analysis.ranges import ranges_text
from rlhf_lab_analysis.rounding import fixed
from rlhf_lab_analysis.statistics.intervals import mean_ends
from rlhf_lab_analysis.tables.gather import gather

LEVEL = 0.95


def select_runs(folders: Sequence[Path], console: Console) -> Selection:
    """The conditions of the runs in these folders that can be compared.

    Prints which runs are left out, and why. Raises UserError if no run can be compared.
    """
    selection = cells(gather([str(folder) for folder in folders]))
    for line in selection.left_out:
        console.print(line)
    if not selection.cells:
        raise UserError(
            f"no finished, evaluated run in {', '.join(map(str, folders))}: `rlhf-lab runs` lists "
            "what is there"
        )
    return selection


def mean_text(by_seed: Mapping[int, float], digits: int) -> str:
    """The mean over seeds with its 95% t interval; the mean alone where seeds do not differ."""
    values = [by_seed[seed] for seed in sorted(by_seed)]
    point = fixed(fmean(values), digits)
    if min(values) == max(values):
        return point
    low, high = (fixed(end, digits) for end in mean_ends(values, LEVEL))
    return f"{point} [{low}, {high}]"


def caption_of(seeds: Collection[int]) -> str:
    """The beginning of a caption: over which seeds the numbers are means."""
    named = ranges_text(seeds)
    if len(seeds) == 1:
        return f"One seed ({named}), so there are no intervals"
    return f"Means over {len(seeds)} seeds ({named}) with 95% t intervals over seeds"

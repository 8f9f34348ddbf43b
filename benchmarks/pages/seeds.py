"""Runs that a study compares, and means over their seeds as texts."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.comparison.selection import Selection, cells
from rlhf_lab_analysis.publication_tables.estimates import over_seeds
from rlhf_lab_analysis.ranges import ranges_text
from rlhf_lab_analysis.statistics.results import Method, Options
from rlhf_lab_analysis.tables.gather import gather
from rlhf_lab_analysis.tables.table import Tables

INTERVAL = Options(method=Method.t)


def select_runs(folders: Sequence[Path], console: Console) -> tuple[Tables, Selection]:
    """The tables of the runs in these folders, and the conditions that can be compared.

    Prints which runs are left out, and why. Raises UserError if no run can be compared.
    """
    tables = gather([str(folder) for folder in folders])
    selection = cells(tables)
    for line in selection.left_out:
        console.print(line)
    if not selection.cells:
        raise UserError(
            f"no finished, evaluated run in {', '.join(map(str, folders))}: `rlhf-lab runs` lists "
            "what is there"
        )
    return tables, selection


def mean_text(by_seed: Mapping[int, float], digits: int) -> str:
    """The mean over seeds with its 95% t interval; the mean alone where seeds do not differ."""
    return over_seeds(by_seed, "mean", INTERVAL, digits)[0].text()


def caption_of(seeds: Collection[int]) -> str:
    """The beginning of a caption: over which seeds the numbers are means."""
    named = ranges_text(seeds)
    if len(seeds) == 1:
        return f"One seed ({named}), so there are no intervals"
    return f"Means over {len(seeds)} seeds ({named}) with 95% t intervals over seeds"

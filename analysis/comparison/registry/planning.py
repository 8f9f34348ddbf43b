"""How many stage seeds would decide a claim, and what their runs cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import starmap

import numpy as np

from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.comparison.cell import Cell
from rlhf_lab_analysis.comparison.registry.comparisons import Compared
from rlhf_lab_analysis.comparison.registry.settings import Setting
from rlhf_lab_analysis.statistics.power import Aim, chance_of_verdict, least

WANTED_POWER = 0.8


def spread_of(part: Compared) -> float:
    """The standard deviation of an effect over seeds."""
    return float(np.std(list(part.effects.values()), ddof=1))


def needed_for(aim: Aim, setting: Setting) -> tuple[int, float] | None:
    """The seeds with which an undecided claim would be shown, or refuted, if what was measured is
    true, and the core-hours of their runs; None where thousands do not suffice, where seeds do not
    differ, which gives no spread to plan with, and for a fit, whose interval is not of a mean."""
    if any(part.fitted or not spread_of(part) for part in setting.parts):
        return None
    try:
        seeds = least_of_parts(aim, setting.parts)
    except UserError:
        return None
    return seeds, seeds * sum(core_seconds(cell) for cell in setting.cells) / 3600


def least_of_parts(aim: Aim, parts: Sequence[Compared]) -> int:
    """The least number of seeds that decides a claim of these parts (`decisions.all_of`): all must
    be shown, or one refuted at the level that is corrected for their number."""

    def seeds(one: Aim, part: Compared) -> int:
        return least(one, spread_of(part), WANTED_POWER, 1, chance_of_verdict)

    aims = [(replace(aim, truth=mean_of(part)), part) for part in parts]
    corrected = len(parts) * aim.together
    refuted = [(replace(one, together=corrected), part) for one, part in aims if not one.is_true]
    return min(starmap(seeds, refuted)) if refuted else max(starmap(seeds, aims))


def mean_of(part: Compared) -> float:
    return float(np.mean(list(part.effects.values())))


def core_hours(cell: Cell) -> float:
    """What all runs of a condition took of one core."""
    return core_seconds(cell) * len(cell.seeds) / 3600


def core_seconds(cell: Cell) -> float:
    """What the runs of a seed take of one core: training and evaluation."""
    trained = cell.at_end("x/device_hours")
    hours = sum(trained.values()) / len(trained)
    judged = [
        float(rows["timing/seconds"].sum())
        for rows in cell.rows.values()
        if "timing/seconds" in rows
    ]
    each = hours * 3600 + (sum(judged) / len(judged) if judged else 0.0)
    return each * cell.num_runs / len(cell.seeds)

"""Compare two conditions at equal cost, on any axis of the ledger."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rlhf_lab_analysis.comparison.questions.answers import Criteria, Number, change
from rlhf_lab_analysis.comparison.selection import Cell
from rlhf_lab_analysis.statistics.curves import RunCurve, common_range, values_on_grid
from rlhf_lab_analysis.statistics.decisions import Shows

# The columns in which a cost may be counted, and their names in texts.
AXES: Mapping[str, str] = {
    "x/updates": "updates",
    "x/completions": "completions",
    "x/generated_tokens": "generated tokens",
    "x/flops": "FLOPs",
    "x/wall_seconds": "wall-clock",
    "x/device_hours": "device-hours",
}


def at_equal_cost(
    first: Cell,
    second: Cell,
    axis: str,
    criteria: Criteria,
    together: int = 1,
    shows: Shows = Shows.above,
) -> Number:
    """Quality of the first less that of the second when both have spent what the cheapest run of
    all spent in the end; on straight lines between evaluated versions. together, shows: of which
    claim the interval is.

    Raises UserError where a run has no such axis.
    """
    curves = [cell.curves(axis, criteria.quality) for cell in (first, second)]
    spent = common_range([curve for one in curves for curve in one.values()])[1]
    heights = [at(one, spent) for one in curves]
    made = change(heights[0], heights[1], together, shows)
    return Number(f"at equal {AXES.get(axis, axis)} ({spent:,.4g})", made)


def at(curves: Mapping[int, RunCurve], x: float) -> dict[int, float]:
    """The height of each run's curve at x."""
    grid = np.array([x])
    return {seed: float(values_on_grid([curve], grid)[0, 0]) for seed, curve in curves.items()}

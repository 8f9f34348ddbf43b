"""Split the variance of a number over stage seeds crossed with seeds of the run.

Two-way analysis of variance without replication, both ways random (Searle, Casella and McCulloch
1992, chapter 4): number = mean + stage seed + seed + rest. No library that the project uses has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy import stats

from rlhf_lab.types.errors import UserError


@dataclass(frozen=True)
class VarianceParts:
    """Standard deviations of the parts of a number, in its unit; a part whose estimate is negative
    is 0. rows: of the stage seeds. columns: of the seeds, which all stage seeds have in common.
    rest: of what is left. share: of rows in rows and rest, with its exact interval. p_columns:
    probability of columns that differ as much where seeds have nothing in common."""

    rows: float
    columns: float
    rest: float
    share: float
    low: float
    high: float
    p_columns: float

    def worth(self, repeats: int) -> float:
        """How many stage seeds with one seed each are as good as one with so many seeds."""
        whole = self.rows**2 + self.rest**2
        return whole / (self.rows**2 + self.rest**2 / repeats) if whole else 1.0


def variance_parts(
    numbers: Mapping[int, Mapping[int, float]], level: float = 0.95
) -> VarianceParts:
    """numbers: by stage seed and seed. Raises UserError unless there are two or more of both and
    each stage seed has the same seeds."""
    seeds = [sorted(one) for one in numbers.values()]
    if len(numbers) < 2 or len(seeds[0]) < 2 or any(one != seeds[0] for one in seeds):
        raise UserError(
            f"seeds of the stage seeds are {seeds}: pass two or more stage seeds that have the "
            "same two or more seeds"
        )
    y_RC = np.array([[one[seed] for seed in seeds[0]] for one in numbers.values()])
    num_rows, num_columns = y_RC.shape
    row_R, column_C = y_RC.mean(axis=1), y_RC.mean(axis=0)
    rest_RC = y_RC - row_R[:, None] - column_C + y_RC.mean()
    free = (num_rows - 1, num_columns - 1, (num_rows - 1) * (num_columns - 1))
    of_rows = num_columns * float(row_R.var(ddof=1))
    of_columns = num_rows * float(column_C.var(ddof=1))
    of_rest = float((rest_RC**2).sum()) / free[2]
    parts = (max(0.0, of_rows - of_rest) / num_columns, max(0.0, of_columns - of_rest) / num_rows)
    if not of_rest:
        share = low = high = float(of_rows > 0)
        p_columns = float(not of_columns)
    else:
        ratio = of_rows / of_rest
        tail = (1 - level) / 2
        ends = (
            ratio / stats.f.isf(tail, free[0], free[2]),
            ratio / stats.f.isf(1 - tail, free[0], free[2]),
        )
        share, low, high = (share_of(one, num_columns) for one in (ratio, *ends))
        p_columns = float(stats.f.sf(of_columns / of_rest, free[1], free[2]))
    return VarianceParts(
        parts[0] ** 0.5, parts[1] ** 0.5, of_rest**0.5, share, low, high, p_columns
    )


def share_of(ratio: float, repeats: int) -> float:
    """Of the ratio of mean squares of rows and rest."""
    return max(0.0, (ratio - 1) / (ratio - 1 + repeats))

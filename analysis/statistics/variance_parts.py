"""Split the variance of a number over stage seeds crossed with seeds of the run.

Two-way analysis of variance without replication, both ways random (Searle, Casella and McCulloch
1992, chapter 4): number = mean + stage seed + seed + rest. No library that the project uses has it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy import stats

from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.statistics.arrays import Floats
from rlhf_lab_analysis.statistics.intervals import mean_ends


@dataclass(frozen=True)
class VarianceParts:
    """Standard deviations of the parts of a number, in its unit; a part whose estimate is negative
    is 0. rows: of the stage seeds. columns: of the seeds, which all stage seeds have in common.
    rest: of what is left. p_columns: probability of columns that differ as much where seeds have
    nothing in common. mean: of all numbers. of_stages: half the width of its t interval over stage
    seeds, which holds for the seeds that there are. of_both: the same if another experiment drew
    other seeds too."""

    rows: float
    columns: float
    rest: float
    p_columns: float
    mean: float
    of_stages: float
    of_both: float


@dataclass(frozen=True)
class MeanSquares:
    """Of rows, columns and what is left, each with its degrees of freedom."""

    rows: float
    columns: float
    rest: float
    free: tuple[int, int, int]

    def variances(self) -> tuple[float, float, float]:
        """The variance that rows, columns and the rest add to one number; 0 for a negative one."""
        num_rows, num_columns = self.free[0] + 1, self.free[1] + 1
        rows, columns = (max(0.0, one - self.rest) for one in (self.rows, self.columns))
        return rows / num_columns, columns / num_rows, self.rest

    def error(self) -> tuple[float, float]:
        """Standard error of the mean of all numbers, where rows and columns are both drawn, and its
        degrees of freedom by Satterthwaite (1946). A part that is estimated as negative is 0, and
        then the larger of the other two is all there is."""
        parts = [
            (self.rows, self.free[0]),
            (self.columns, self.free[1]),
            (-self.rest, self.free[2]),
        ]
        if min(self.rows, self.columns) <= self.rest:
            parts = [max(parts[:2], key=lambda one: one[0])]
        square = sum(part for part, _ in parts)
        freedom = square**2 / sum(part**2 / free for part, free in parts) if square else 1.0
        return math.sqrt(square / ((self.free[0] + 1) * (self.free[1] + 1))), freedom


def grid_of(numbers: Mapping[int, Mapping[int, float]]) -> Floats:
    """Numbers by stage seed and seed as rows and columns (R, C). Raises UserError unless there are
    two or more of both and each stage seed has the same seeds."""
    seeds = [sorted(one) for one in numbers.values()]
    if len(numbers) < 2 or len(seeds[0]) < 2 or any(one != seeds[0] for one in seeds):
        raise UserError(
            f"seeds of the stage seeds are {seeds}: pass two or more stage seeds that have the "
            "same two or more seeds"
        )
    return np.array([[one[seed] for seed in seeds[0]] for one in numbers.values()])


def mean_squares(y_RC: Floats) -> MeanSquares:
    """Of a table with one number in each place."""
    num_rows, num_columns = y_RC.shape
    row_R, column_C = y_RC.mean(axis=1), y_RC.mean(axis=0)
    rest_RC = y_RC - row_R[:, None] - column_C + y_RC.mean()
    free = (num_rows - 1, num_columns - 1, (num_rows - 1) * (num_columns - 1))
    return MeanSquares(
        num_columns * float(row_R.var(ddof=1)),
        num_rows * float(column_C.var(ddof=1)),
        float((rest_RC**2).sum()) / free[2],
        free,
    )


def variance_parts(
    numbers: Mapping[int, Mapping[int, float]], level: float = 0.95
) -> VarianceParts:
    """numbers: by stage seed and seed, as `grid_of` takes them."""
    y_RC = grid_of(numbers)
    squares = mean_squares(y_RC)
    free, rest = squares.free, squares.rest
    p_columns = float(not squares.columns)
    if rest:
        p_columns = float(stats.f.sf(squares.columns / rest, free[1], free[2]))
    mean, row_R = float(y_RC.mean()), y_RC.mean(axis=1)
    error, freedom = squares.error()
    of_rows, of_columns, of_rest = map(math.sqrt, squares.variances())
    return VarianceParts(
        of_rows,
        of_columns,
        of_rest,
        p_columns,
        mean,
        mean_ends(row_R.tolist(), level)[1] - mean,
        float(stats.t.ppf((1 + level) / 2, freedom)) * error,
    )

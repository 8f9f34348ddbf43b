"""How many seeds an interval of a wanted width needs, judged by those that there are.

A width is no power: an interval that is as wide as twice the margin reaches a verdict in about half
of all tries (`power` plans for verdicts).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import stats

from analysis.statistics.contrasts import Contrast
from analysis.statistics.equivalence import tails_of
from analysis.statistics.results import FEW_SEEDS
from rlhf_lab.types.errors import UserError

MOST_SEEDS = 1_000_000


@dataclass(frozen=True)
class MoreSeeds:
    """Seeds of each condition that the wanted interval needs, and how many are to be added.

    low, high: the same number if the spread is as small, or as large, as its own interval allows.
    """

    half_width: float
    level: float
    seeds: int
    needed: int
    low: int
    high: int
    warnings: tuple[str, ...]

    @property
    def more(self) -> int:
        return max(0, self.needed - self.seeds)


def smallest(variance: float, conditions: int, half_width: float, level: float) -> int:
    """The least n with t(conditions * (n - 1)) * sqrt(variance / n) <= half_width.

    variance: of one pair's difference, or the sum of both conditions' variances.
    """

    def half(seeds: int) -> float:
        quantile = float(stats.t.ppf((1 + level) / 2, conditions * (seeds - 1)))
        return quantile * float(np.sqrt(variance / seeds))

    low, high = 1, 2
    while half(high) > half_width:
        low, high = high, 2 * high
        if high > MOST_SEEDS:
            raise UserError(
                f"half_width={half_width}: more than {MOST_SEEDS} seeds are needed: pass a larger "
                "one"
            )
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if half(middle) <= half_width else (middle, high)
    return high


def more_seeds(contrast: Contrast, half_width: float, level: float = 0.95) -> MoreSeeds:
    """How many seeds make the t interval of a difference as narrow as wanted.

    Raises UserError for a half-width that is not above 0, or that needs millions of seeds.
    """
    if not half_width > 0:
        raise UserError(f"half_width={half_width}: pass more than 0, in the unit of the scores")
    variance = sum(float(part.var(ddof=1)) for part in contrast.parts)
    seeds, conditions = min(len(part) for part in contrast.parts), len(contrast.parts)
    freedom = tails_of(contrast).freedom if conditions > 1 else seeds - 1
    ends = freedom / stats.chi2.ppf([(1 + level) / 2, (1 - level) / 2], freedom)
    needed, low, high = (
        smallest(variance * factor, conditions, half_width, level)
        for factor in (1.0, *map(float, ends))
    )
    told = contrast.warnings
    if seeds < FEW_SEEDS:
        told += (f"the spread of {seeds} seeds is itself uncertain: between {low} and {high}",)
    return MoreSeeds(half_width, level, seeds, needed, low, high, told)

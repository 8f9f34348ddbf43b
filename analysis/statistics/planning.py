"""Plan how many seeds an interval of a given width needs, by the spread of the existing seeds.

A width is not power: an interval that is as wide as twice the margin reaches a verdict in about
half of all experiments (`power` plans for verdicts).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import stats

from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.statistics.contrasts import Contrast
from rlhf_lab_analysis.statistics.equivalence import tails_of
from rlhf_lab_analysis.statistics.results import FEW_SEEDS

MOST_SEEDS = 1_000_000


@dataclass(frozen=True, kw_only=True)
class SeedPlan:
    """Seeds of each condition that there are and that are needed, and how many are to be added.

    low, high: the needed number if the spread is as small, or as large, as its own interval allows.
    """

    seeds: int
    needed: int
    low: int
    high: int
    warnings: tuple[str, ...]

    @property
    def more(self) -> int:
        return max(0, self.needed - self.seeds)


@dataclass(frozen=True, kw_only=True)
class MoreSeeds(SeedPlan):
    """Seeds with which an interval is as narrow as wanted."""

    half_width: float
    level: float


def least_seeds(is_enough: Callable[[int], bool], most: int, remedy: str) -> int:
    """The least number of seeds that is enough, if all larger ones are. Raises UserError, with the
    remedy, if more than `most` are needed."""
    low, high = 1, 2
    while not is_enough(high):
        low, high = high, 2 * high
        if high > most:
            raise UserError(f"more than {most} seeds are needed: {remedy}")
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high


def variance_factors(contrast: Contrast, level: float) -> tuple[float, float, float]:
    """1, and the ends of the interval of the contrast's variance, as multiples of it."""
    seeds, conditions = smallest_part(contrast), len(contrast.parts)
    freedom = tails_of(contrast).freedom if conditions > 1 else seeds - 1
    low, high = freedom / stats.chi2.ppf([(1 + level) / 2, (1 - level) / 2], freedom)
    return 1.0, float(low), float(high)


def smallest_part(contrast: Contrast) -> int:
    """The seeds of the condition that has the fewest, or the pairs."""
    return min(len(part) for part in contrast.parts)


def variance_of(contrast: Contrast) -> float:
    """Of one pair's difference, or the sum of both conditions' variances."""
    return sum(float(part.var(ddof=1)) for part in contrast.parts)


def spread_warnings(contrast: Contrast, low: int, high: int) -> tuple[str, ...]:
    seeds = smallest_part(contrast)
    if seeds >= FEW_SEEDS:
        return contrast.warnings
    uncertain = f"the spread of {seeds} seeds is itself uncertain: between {low} and {high}"
    return (*contrast.warnings, uncertain)


def smallest(variance: float, conditions: int, half_width: float, level: float) -> int:
    """The least n with t(conditions * (n - 1)) * sqrt(variance / n) <= half_width.

    variance: of one pair's difference, or the sum of both conditions' variances.
    """

    def half(seeds: int) -> float:
        quantile = float(stats.t.ppf((1 + level) / 2, conditions * (seeds - 1)))
        return quantile * float(np.sqrt(variance / seeds))

    remedy = f"pass a larger half_width than {half_width}"
    return least_seeds(lambda seeds: half(seeds) <= half_width, MOST_SEEDS, remedy)


def more_seeds(contrast: Contrast, half_width: float, level: float = 0.95) -> MoreSeeds:
    """How many seeds make the t interval of a difference as narrow as wanted.

    Raises UserError for a half-width that is not above 0, or that needs millions of seeds.
    """
    if not half_width > 0:
        raise UserError(f"half_width={half_width}: pass more than 0, in the unit of the scores")
    variance = variance_of(contrast)
    needed, low, high = (
        smallest(variance * factor, len(contrast.parts), half_width, level)
        for factor in variance_factors(contrast, level)
    )
    return MoreSeeds(
        half_width=half_width,
        level=level,
        seeds=smallest_part(contrast),
        needed=needed,
        low=low,
        high=high,
        warnings=spread_warnings(contrast, low, high),
    )

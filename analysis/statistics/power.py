"""Compute the power with which a number of seeds decides a claim, and how many seeds it takes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import stats

from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.statistics.arrays import Floats
from rlhf_lab_analysis.statistics.decisions import Shows, options_of

MOST_SEEDS = 10_000
# Spreads that a sample may show, at the middles of as many equal shares of chance.
SPREADS = 4000


@dataclass(frozen=True)
class Aim:
    """A claim that is tested. truth: the difference that there really is. together: how many
    comparisons are to hold at once. level: of each test."""

    shows: Shows
    margin: float
    truth: float = 0.0
    together: int = 1
    level: float = 0.95

    @property
    def is_true(self) -> bool:
        """Whether the truth is what is claimed."""
        distances = {
            Shows.below: -self.truth,
            Shows.above: self.truth,
            Shows.equal: self.margin - abs(self.truth),
            Shows.not_worse: self.margin + self.truth,
        }
        return distances[self.shows] > 0

    def require_true(self) -> None:
        """Raises UserError for a claim that is false: no number of seeds shows it."""
        if not self.is_true:
            raise UserError(
                f"truth={self.truth:g}: what is claimed ({self.shows}, margin {self.margin:g}) is "
                "not true of it, so that no number of seeds shows it"
            )


def power(aim: Aim, spread: float, seeds: int, conditions: int = 1) -> float:
    """How often so many seeds show the claim, if differences are normal.

    spread: standard deviation of a pair's difference, or, of two independent conditions, the root
    of the sum of their variances. Raises UserError for a claim that is false.
    """
    aim.require_true()
    half = half_widths(aim, spread, seeds, conditions)
    error = spread / np.sqrt(seeds)
    if aim.shows is Shows.equal:
        room = np.maximum(aim.margin - half, 0.0)
        ends = (
            stats.norm.cdf((room - aim.truth) / error),
            stats.norm.cdf((-room - aim.truth) / error),
        )
        return float((ends[0] - ends[1]).mean())
    distance = aim.margin + aim.truth if aim.shows is Shows.not_worse else abs(aim.truth)
    return float(stats.norm.cdf((distance - half) / error).mean())


def half_widths(aim: Aim, spread: float, seeds: int, conditions: int) -> Floats:
    """Half the width of the interval at each spread that a sample may show."""
    freedom = conditions * (seeds - 1)
    shares = (np.arange(SPREADS) + 0.5) / SPREADS
    seen = spread * np.sqrt(stats.chi2.ppf(shares, freedom) / freedom)
    level = options_of(aim.shows, aim.together, aim.level).level
    return np.asarray(float(stats.t.ppf((1 + level) / 2, freedom)) * seen / np.sqrt(seeds))


def chance_of_verdict(aim: Aim, spread: float, seeds: int, conditions: int = 1) -> float:
    """How often so many seeds show the claim or refute it (`decisions.decide`), whether it is true
    or not, if differences are normal."""
    half = half_widths(aim, spread, seeds, conditions)
    # The differences that decide nothing, on one side of zero or, of `not worse`, of -margin.
    inner = np.maximum(aim.margin - half, 0.0)
    outer = aim.margin + half if aim.shows is Shows.equal else half
    truth = aim.truth
    if aim.shows is Shows.not_worse:
        inner, truth = np.zeros_like(half), truth + aim.margin
    error = spread / np.sqrt(seeds)
    ends = [stats.norm.cdf((end - truth) / error) for end in (outer, inner, -inner, -outer)]
    return 1 - float(
        np.maximum(ends[0] - ends[1], 0).mean() + np.maximum(ends[2] - ends[3], 0).mean()
    )


def least(
    aim: Aim,
    spread: float,
    wanted: float,
    conditions: int,
    chance: Callable[[Aim, float, int, int], float] = power,
) -> int:
    """The least number of seeds with the wanted power, or, with `chance_of_verdict`, with that
    chance of a verdict. Raises UserError if seeds do not differ, or thousands do not suffice."""
    if spread <= 0:
        raise UserError(
            f"spread={spread:g}: no seed differs from another, so that none can be planned"
        )
    seeds = range(2, MOST_SEEDS + 1)
    found = bisect_left(seeds, wanted, key=lambda number: chance(aim, spread, number, conditions))
    if found == len(seeds):
        raise UserError(f"more than {MOST_SEEDS} seeds are needed: state a larger margin")
    return seeds[found]

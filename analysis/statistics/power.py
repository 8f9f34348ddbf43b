"""Compute the power with which a number of seeds decides a claim, and how many seeds it takes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import stats

from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.statistics.contrasts import Contrast
from rlhf_lab_analysis.statistics.decisions import Shows, options_of
from rlhf_lab_analysis.statistics.planning import (
    SeedPlan,
    least_seeds,
    smallest_part,
    spread_warnings,
    variance_factors,
    variance_of,
)

MOST_SEEDS = 10_000
# Spreads that a sample may show, at the middles of as many equal shares of chance.
SPREADS = 4000


@dataclass(frozen=True)
class Aim:
    """A claim that is to be shown. truth: the difference that there really is. together: how many
    comparisons are to hold at once. level: of each test.

    Raises UserError for a truth of which the claim is false: no number of seeds shows that.
    """

    shows: Shows
    margin: float
    truth: float = 0.0
    together: int = 1
    level: float = 0.95

    def __post_init__(self) -> None:
        distances = {
            Shows.below: -self.truth,
            Shows.above: self.truth,
            Shows.equal: self.margin - abs(self.truth),
            Shows.not_worse: self.margin + self.truth,
        }
        if distances[self.shows] <= 0:
            raise UserError(
                f"truth={self.truth:g}: what is claimed ({self.shows}, margin {self.margin:g}) is "
                "not true of it, so that no number of seeds shows it"
            )


@dataclass(frozen=True, kw_only=True)
class Plan(SeedPlan):
    """Seeds with which a claim is shown with the wanted power. now: the power of the seeds that
    there are."""

    aim: Aim
    power: float
    now: float


def power(aim: Aim, spread: float, seeds: int, conditions: int = 1) -> float:
    """How often so many seeds show the claim, if differences are normal.

    spread: standard deviation of a pair's difference, or, of two independent conditions, the root
    of the sum of their variances.
    """
    freedom = conditions * (seeds - 1)
    shares = (np.arange(SPREADS) + 0.5) / SPREADS
    seen = spread * np.sqrt(stats.chi2.ppf(shares, freedom) / freedom)
    level = options_of(aim.shows, aim.together, aim.level).level
    half = float(stats.t.ppf((1 + level) / 2, freedom)) * seen / np.sqrt(seeds)
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


def least(aim: Aim, spread: float, wanted: float, conditions: int) -> int:
    """The least number of seeds with the wanted power."""
    return least_seeds(
        lambda seeds: power(aim, spread, seeds, conditions) >= wanted,
        MOST_SEEDS,
        "state a larger margin",
    )


def seeds_for(contrast: Contrast, aim: Aim, wanted: float = 0.8, level: float = 0.95) -> Plan:
    """How many seeds show a claim with the wanted power, judged by the spread of those that there
    are. level: of the spread's own interval.

    Raises UserError for a power that is not between 0 and 1, or that needs thousands of seeds.
    """
    if not 0 < wanted < 1:
        raise UserError(f"power={wanted}: pass a share between 0 and 1, such as 0.8")
    spread = float(np.sqrt(variance_of(contrast)))
    if spread == 0:
        raise UserError("no seed differs from another: their spread cannot be planned with")
    seeds, conditions = smallest_part(contrast), len(contrast.parts)
    needed, low, high = (
        least(aim, spread * math.sqrt(factor), wanted, conditions)
        for factor in variance_factors(contrast, level)
    )
    return Plan(
        aim=aim,
        power=wanted,
        seeds=seeds,
        now=power(aim, spread, seeds, conditions),
        needed=needed,
        low=low,
        high=high,
        warnings=spread_warnings(contrast, low, high),
    )

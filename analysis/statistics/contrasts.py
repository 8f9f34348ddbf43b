"""Differences between two conditions, in pairs of equal seeds where there are such."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from analysis.statistics.arrays import Floats, finite, seeds_of_both
from analysis.statistics.bootstrap import Statistic, Weights, interval
from analysis.statistics.results import Basis, Estimate, Options, require_seeds, size_warnings
from rlhf_lab.types.errors import UserError

# The score of each seed, or the scores of its tasks.
BySeed: TypeAlias = Mapping[int, ArrayLike]
# From so many common seeds on differences are taken in pairs.
PAIRS = 3


@dataclass(frozen=True, eq=False)
class Contrast:
    """Two conditions to be compared: one array of differences, or one array for each.

    Seeds that only one condition has are left out of pairs, and named in the warnings.
    """

    seeds: tuple[int, ...]
    parts: tuple[Floats, ...]
    warnings: tuple[str, ...]

    @property
    def is_paired(self) -> bool:
        return len(self.parts) == 1

    @property
    def difference(self) -> float:
        """The mean of the first less that of the second."""
        return float(statistic_of(self)([np.ones((1, len(part))) for part in self.parts])[0, 0])

    def basis(self, options: Options, *warnings: str) -> Basis:
        sizes = tuple(len(part) for part in self.parts)
        found = (*size_warnings(sizes, options.method), *self.warnings, *warnings)
        if all((part == part[0]).all() for part in self.parts):
            found += ("no seed differs from another: an interval without width says nothing",)
        return Basis(sizes, 1, options, found)


def by_seed(name: str, given: BySeed) -> dict[int, float]:
    """The mean over tasks of each seed's scores. Raises UserError for NaN or other tasks."""
    if not given:
        raise UserError(f"{name} has no seeds: pass at least two")
    values = {
        seed: finite(f"{name}[seed {seed}]", np.atleast_1d(np.asarray(score)), (1,))
        for seed, score in given.items()
    }
    if len({len(scores) for scores in values.values()}) > 1:
        raise UserError(f"{name}: seeds have different numbers of tasks; pass the same tasks")
    return {seed: float(scores.mean()) for seed, scores in values.items()}


def in_pairs(first: BySeed, second: BySeed) -> Contrast:
    """Differences first - second of the seeds that both have.

    Raises UserError if fewer than two are common: independent seeds go to `apart`.
    """
    ours, others = by_seed("first", first), by_seed("second", second)
    common, odd = seeds_of_both(ours, others)
    if len(common) < 2:
        raise UserError(
            f"{len(common)} seeds are common to both (first has {sorted(ours)}, second has "
            f"{sorted(others)}): train at least 2 common ones, or compare them unpaired"
        )
    values = np.array([ours[seed] - others[seed] for seed in common])
    told = (f"left out of the pairs, as one condition alone has them: seeds {odd}",) if odd else ()
    return Contrast(tuple(common), (np.sort(values),), told)


def apart(first: BySeed, second: BySeed) -> Contrast:
    """Both conditions with their own seeds, as if they were independent."""
    ours, others = by_seed("first", first), by_seed("second", second)
    require_seeds("first", [len(ours)])
    require_seeds("second", [len(others)])
    told: tuple[str, ...] = ()
    if common := seeds_of_both(ours, others)[0]:
        told = (f"{len(common)} seeds are in both: pairs would tell more (in_pairs)",)
    parts = (np.sort([*ours.values()]), np.sort([*others.values()]))
    return Contrast(tuple(sorted({*ours, *others})), parts, told)


def seeds_to_pair(first: Iterable[int], second: Iterable[int]) -> list[int]:
    """The seeds on which two conditions are paired; none if they are to be taken apart.

    A run that is lost leaves its seed out of the pairs, and is no reason for another method: from
    `PAIRS` common seeds on it is always pairs, as it is where both have the same seeds.
    """
    ours, others = set(first), set(second)
    common = sorted(ours & others)
    return common if len(common) >= PAIRS or ours == others else []


def matched(first: BySeed, second: BySeed) -> Contrast:
    """In pairs of common seeds where there are enough of them, else apart; the warnings say which,
    and name the seeds that one condition alone has."""
    if seeds_to_pair(first, second):
        return in_pairs(first, second)
    made = apart(first, second)
    told = f"seeds differ ({sorted(first)}, {sorted(second)}): taken as independent"
    return Contrast(made.seeds, made.parts, (told,))


def statistic_of(contrast: Contrast) -> Statistic:
    """The difference of means, of each draw: (R, 1)."""

    def statistic(weights: Weights) -> Floats:
        means = [
            (weight @ part) / weight.sum(axis=1)
            for weight, part in zip(weights, contrast.parts, strict=True)
        ]
        return np.asarray(means[0] - means[1] if len(means) > 1 else means[0])[:, None]

    return statistic


def difference(contrast: Contrast, options: Options) -> Estimate:
    """The difference of means with its interval.

    method=t is Student's in pairs and Welch's apart.
    """
    units = [len(part) for part in contrast.parts]
    made = interval(statistic_of(contrast), units, options, "difference")
    name = "paired difference" if contrast.is_paired else "difference"
    return made.estimate(name, contrast.basis(options))


def speed_up(before: BySeed, after: BySeed, options: Options) -> Estimate:
    """How many times less the second needs: the ratio of geometric means, with its interval.

    The interval is made for the mean log ratio, in pairs where the seeds are the same ones.
    Raises UserError for times (or costs) that are not above 0.
    """
    logs = [logs_of(name, given) for name, given in (("before", before), ("after", after))]
    contrast = matched(*logs)
    made = difference(contrast, options)
    name = "paired speed-up" if contrast.is_paired else "speed-up"
    point, low, high = (float(np.exp(value)) for value in (made.point, made.low, made.high))
    return Estimate(name, point, low, high, made.basis)


def logs_of(name: str, given: BySeed) -> dict[int, ArrayLike]:
    found: dict[int, ArrayLike] = {}
    for seed, value in given.items():
        values = finite(f"{name}[seed {seed}]", np.atleast_1d(np.asarray(value)), (1,))
        if values.min() <= 0:
            raise UserError(f"{name}[seed {seed}] is {values.min()}: a ratio needs more than 0")
        found[seed] = np.log(values)
    return found

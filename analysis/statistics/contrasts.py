"""Differences between two conditions: in pairs of common seeds if enough, else unpaired."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from scipy import stats

from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.statistics.arrays import Floats
from rlhf_lab_analysis.statistics.bootstrap import Statistic, Weights, interval
from rlhf_lab_analysis.statistics.results import (
    Basis,
    Estimate,
    Options,
    require_seeds,
    size_warnings,
)

# The score of each seed.
BySeed: TypeAlias = Mapping[int, float]
# The least number of common seeds for differences in pairs.
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
            found += ("no seed differs from another: an interval without width shows nothing",)
        return Basis(sizes, 1, options, found)


def by_seed(name: str, given: BySeed) -> dict[int, float]:
    """The scores as numbers. Raises UserError for one that is not finite, and for none."""
    if not given:
        raise UserError(f"{name} has no seeds: pass at least two")
    if bad := [seed for seed, score in given.items() if not math.isfinite(score)]:
        raise UserError(
            f"{name}[seed {bad[0]}] is {given[bad[0]]}: leave that run out, or state which score "
            "it is to count as"
        )
    return {seed: float(score) for seed, score in given.items()}


def in_pairs(first: BySeed, second: BySeed) -> Contrast:
    """Differences first - second of the seeds that both have.

    Raises UserError if fewer than two are common: independent seeds go to `apart`.
    """
    ours, others = by_seed("first", first), by_seed("second", second)
    common = sorted({*ours} & {*others})
    if len(common) < 2:
        raise UserError(
            f"{len(common)} seeds are common to both (first has {sorted(ours)}, second has "
            f"{sorted(others)}): train at least 2 common ones, or compare them unpaired"
        )
    values = np.array([ours[seed] - others[seed] for seed in common])
    return Contrast(tuple(common), (np.sort(values),), pairing_notes(ours, others, common))


def apart(first: BySeed, second: BySeed) -> Contrast:
    """Both conditions with their own seeds, as if they were independent."""
    ours, others = by_seed("first", first), by_seed("second", second)
    require_seeds("first", [len(ours)])
    require_seeds("second", [len(others)])
    notes: tuple[str, ...] = ()
    if common := {*ours} & {*others}:
        notes = (f"{len(common)} seeds are in both: pairs would show more (in_pairs)",)
    parts = (np.sort([*ours.values()]), np.sort([*others.values()]))
    return Contrast(tuple(sorted({*ours, *others})), parts, notes)


def seeds_to_pair(first: Iterable[int], second: Iterable[int]) -> list[int]:
    """The seeds on which two conditions are paired; empty if they are compared unpaired.

    With `PAIRS` common seeds or more they are always paired, so that one lost run does not change
    the method; so are conditions with the same seeds.
    """
    ours, others = set(first), set(second)
    common = sorted(ours & others)
    return common if len(common) >= PAIRS or ours == others else []


def pairing_notes(
    first: Iterable[int], second: Iterable[int], paired: Sequence[int]
) -> tuple[str, ...]:
    """What a comparison on these pairs leaves out, or, without pairs, that it takes both as
    independent."""
    ours, others = sorted(first), sorted(second)
    if not paired:
        return (f"seeds differ ({ours}, {others}): taken as independent",)
    odd = sorted({*ours} ^ {*others})
    return (f"left out of the pairs, as one condition alone has them: seeds {odd}",) if odd else ()


def matched(first: BySeed, second: BySeed) -> Contrast:
    """`in_pairs` if there are enough common seeds (`seeds_to_pair`), else `apart`. The warnings
    name the seeds that only one condition has."""
    if seeds_to_pair(first, second):
        return in_pairs(first, second)
    return replace(apart(first, second), warnings=pairing_notes(first, second, ()))


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


def p_value(contrast: Contrast) -> float:
    """Two-sided p that there is no difference: Student's t in pairs, Welch's apart. Where no seed
    differs from another it is 0, or 1 of no difference."""
    parts = [float(part.var(ddof=1)) / len(part) for part in contrast.parts]
    error, centre = math.sqrt(sum(parts)), abs(contrast.difference)
    if error == 0:
        return float(centre == 0)
    free = [len(part) - 1 for part in contrast.parts]
    freedom = sum(parts) ** 2 / sum(
        part**2 / number for part, number in zip(parts, free, strict=True)
    )
    return float(2 * stats.t.sf(centre / error, freedom))


def speed_up(before: BySeed, after: BySeed, options: Options) -> Estimate:
    """The ratio before / after of geometric means of times or costs, with its interval.

    The interval is made for the mean log ratio, in pairs where the seeds are the same ones.
    Raises UserError for times (or costs) that are not above 0.
    """
    logs = []
    for name, given in (("before", before), ("after", after)):
        values = by_seed(name, given)
        if bad := [seed for seed, value in values.items() if value <= 0]:
            raise UserError(f"{name}[seed {bad[0]}] is {values[bad[0]]}: a ratio needs more than 0")
        logs.append({seed: math.log(value) for seed, value in values.items()})
    contrast = matched(*logs)
    made = difference(contrast, options)
    name = "paired speed-up" if contrast.is_paired else "speed-up"
    return replace(made.exponential, name=name)

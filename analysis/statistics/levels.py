"""Split the variance of a score into that of seeds and that of prompts, with intervals for both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.statistics.arrays import Floats, generator, require_finite
from rlhf_lab_analysis.statistics.bootstrap import Weights, blocks, count_draws, interval
from rlhf_lab_analysis.statistics.results import (
    Basis,
    Estimate,
    Method,
    Options,
    require_seeds,
    size_warnings,
)
from rlhf_lab_analysis.statistics.variance_parts import mean_squares

# For each seed what each of its prompts gave: 1 for a win, 0.5 for a tie, 0 for a loss.
Wins: TypeAlias = Mapping[int, ArrayLike]


@dataclass(frozen=True)
class Variances:
    """Of what a score's variance consists, and of what that of the mean does.

    seed, prompt, rest: of one score; prompt is 0 where every seed has prompts of its own, as then
    it is part of rest. mean_*: what each adds to the variance of the mean over all.
    """

    seed: float
    prompt: float
    rest: float
    mean_seed: float
    mean_prompt: float
    mean_rest: float

    @property
    def mean(self) -> float:
        return self.mean_seed + self.mean_prompt + self.mean_rest

    @property
    def seed_share(self) -> float:
        """How much of the variance of the mean more seeds alone could take away; 0 of none."""
        return self.mean_seed / self.mean if self.mean > 0 else 0.0


@dataclass(frozen=True)
class TwoLevels:
    """A mean with an interval over seeds for these prompts, and one over seeds and prompts."""

    seeds_alone: Estimate
    seeds_and_prompts: Estimate
    variances: Variances
    prompts_are_shared: bool

    @property
    def warnings(self) -> tuple[str, ...]:
        return self.seeds_and_prompts.warnings


def rows_of(wins: Wins, prompts_are_shared: bool) -> list[Floats]:
    """The scores of each seed. Raises UserError for NaN, one prompt, or other prompts if shared."""
    require_seeds("wins", [len(wins)])
    rows = [require_finite(f"wins[seed {seed}]", wins[seed], (1,)) for seed in sorted(wins)]
    if min(map(len, rows)) < 2:
        raise UserError("one prompt: the two levels need at least 2 for each seed")
    if prompts_are_shared and len({*map(len, rows)}) > 1:
        raise UserError(
            f"seeds were judged on {sorted({*map(len, rows)})} prompts: pass the prompts that all "
            "have, in the same order, or prompts_are_shared=False"
        )
    return rows


def variances_shared(wins_SP: Floats) -> Variances:
    """Seeds and prompts crossed: analysis of variance of two factors, negative parts as 0."""
    seeds, prompts = wins_SP.shape
    seed, prompt, rest = mean_squares(wins_SP).variances()
    return Variances(seed, prompt, rest, seed / seeds, prompt / prompts, rest / (seeds * prompts))


def variances_nested(rows: Sequence[Floats]) -> Variances:
    """Prompts within seeds: analysis of variance of one factor, a negative part as 0."""
    sizes = np.array([len(row) for row in rows])
    total, seeds = int(sizes.sum()), len(rows)
    means = np.array([row.mean() for row in rows])
    rest = float(sum(((row - row.mean()) ** 2).sum() for row in rows)) / (total - seeds)
    centre = float((sizes * means).sum()) / total
    between = float((sizes * (means - centre) ** 2).sum()) / (seeds - 1)
    typical = (total - float((sizes**2).sum()) / total) / (seeds - 1)
    seed = max(0.0, (between - rest) / typical)
    return Variances(seed, 0.0, rest, seed / seeds, 0.0, rest * float((1 / sizes).sum()) / seeds**2)


def draws_shared(wins_SP: Floats, options: Options) -> Floats:
    """Means when seeds and prompts are drawn anew, each by itself (Owen 2007): (R,)."""
    rng = generator(options.seed, "two levels, shared")
    found = []
    for seeds_RS, prompts_RP in blocks(wins_SP.shape, options.repetitions, rng):
        found.append(((seeds_RS @ wins_SP) * prompts_RP).sum(axis=1) / wins_SP.size)
    return np.concatenate(found)


def draws_nested(rows: Sequence[Floats], options: Options) -> Floats:
    """Means when seeds are drawn anew, and for every one of them prompts: (R,)."""
    rng = generator(options.seed, "two levels, nested")
    weights_RS = count_draws([len(rows)], options.repetitions, rng)[0].astype(np.int64)
    found = np.zeros(options.repetitions)
    for row, times_R in zip(rows, weights_RS.T, strict=True):
        values, counts = np.unique(row, return_counts=True)
        drawn_RV = rng.multinomial(times_R * len(row), counts / len(row))
        found += drawn_RV @ values / (len(row) * len(rows))
    return found


def two_levels(wins: Wins, prompts_are_shared: bool, options: Options) -> TwoLevels:
    """The mean of means over prompts, with intervals and the split of its variance.

    prompts_are_shared: column p of every seed is the same prompt. The interval over both levels is
    always of percentiles.
    """
    rows = rows_of(wins, prompts_are_shared)
    means_S = np.array([row.mean() for row in rows])

    def statistic(weights: Weights) -> Floats:
        return np.asarray(weights[0] @ means_S / weights[0].sum(axis=1))[:, None]

    units = [len(rows)]
    made = interval(statistic, units, options, "two levels, seeds")
    notes = size_warnings(units, options.method)
    alone = made.estimate("mean over seeds", Basis((len(rows),), 1, options, notes))
    drawn_R = (
        draws_shared(np.stack(rows), options) if prompts_are_shared else draws_nested(rows, options)
    )
    low, high = np.quantile(drawn_R, [(1 - options.level) / 2, (1 + options.level) / 2])
    chosen = replace(options, method=Method.percentile)
    basis = Basis((len(rows),), 1, chosen, size_warnings(units, chosen.method))
    both = Estimate("mean over seeds and prompts", alone.point, float(low), float(high), basis)
    split = variances_shared(np.stack(rows)) if prompts_are_shared else variances_nested(rows)
    return TwoLevels(alone, both, split, prompts_are_shared)

"""Test a pair of conditions at several interims by permuted labels; the level is spent evenly."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from math import comb

import numpy as np
from numpy.typing import NDArray

from rlhf_lab_analysis.statistics.arrays import Floats, generator

# Sums that differ after this many digits are ties.
DIGITS = 10
ROUNDING = 1e-12


@dataclass(frozen=True)
class Look:
    """What a pair's test found at one interim.

    p: the chance, if labels do not matter, to have stopped before or to see as large a difference;
    level: what it is held against; errors: how many Monte Carlo errors lie between the two,
    infinite where all permutations were tried.
    """

    p: float
    level: float
    is_rejected: bool
    errors: float


@lru_cache(maxsize=16)
def labelings(
    seeds: int, interims: int, permutations: int, seed: int
) -> tuple[NDArray[np.bool_], bool]:
    """Which of 2n seeds of each interim count as the first's: (R, interims, 2n), and if all were.

    All products of choices where they are few enough, else random ones after the true one.
    """
    size, ways = 2 * seeds, comb(2 * seeds, seeds)
    if ways**interims <= permutations:
        chosen = np.zeros((ways, size), dtype=bool)
        for row, places in enumerate(combinations(range(size), seeds)):
            chosen[row, list(places)] = True
        grids = np.meshgrid(*[np.arange(ways)] * interims, indexing="ij")
        return chosen[np.stack([grid.ravel() for grid in grids], axis=1)], True
    rng = generator(seed, "relabel", str(interims))
    found = rng.random((permutations, interims, size)).argsort(axis=2) < seeds
    found[0] = np.arange(size) < seeds
    return found, False


def sums_of(first: Floats, second: Floats, labels: NDArray[np.bool_], scale: float = 0.0) -> Floats:
    """Sum of differences of means up to each interim of each labeling, over a scale.

    Shape (R, interims), rounded so that ties stay ties. scale: that of other pairs with which the
    sums are compared; 0 is the range of these scores.
    """
    _, interims, size = labels.shape
    both = np.concatenate([first, second])
    scale = scale or float(np.ptp(both)) or 1.0
    values_KN = np.concatenate(
        [side[: interims * size // 2].reshape(interims, -1) for side in (first, second)], axis=1
    )
    values_KN = (values_KN - both.mean()) / scale
    signs_RKN = np.where(labels, 2.0 / size, -2.0 / size)
    steps_RK = np.einsum("rkn,kn->rk", signs_RKN, values_KN)
    return np.asarray(np.round(np.cumsum(steps_RK, axis=1), DIGITS))


def looks(sums: Sequence[tuple[Floats, bool]], alpha: float, planned: int) -> Iterator[Look]:
    """The two-sided test of a pair at its interims so far, until it rejects; alpha is for all
    planned ones.

    sums: for each interim the sums up to it, and whether all labelings are there. A labeling that
    exceeded the bound of an earlier interim has stopped there and counts no more.
    """
    bounds: list[float] = []
    spent = 0.0
    for place, (signed_RK, is_exact) in enumerate(sums):
        sums_RK = np.abs(signed_RK)
        total, level = len(sums_RK), alpha * (place + 1) / planned
        alive_R = (sums_RK[:, :-1] <= np.array(bounds)).all(axis=1)
        last_R, observed = sums_RK[alive_R, -1], float(sums_RK[0, -1])
        bound, used = bound_of(last_R, (level - spent) * total)
        p = spent + float((last_R >= observed).sum()) / total
        yield Look(p, level, observed > bound, errors_of(p, level, total, is_exact))
        if observed > bound:
            return
        bounds.append(bound)
        spent += used / total


def errors_of(p: float, level: float, total: int, is_exact: bool) -> float:
    """Monte Carlo errors between a p-value and its level; infinite if all labelings were tried."""
    if is_exact:
        return float("inf")
    return float(abs(p - level) / np.sqrt(level * (1 - level) / total))


def bound_of(values_R: Floats, allowed: float) -> tuple[float, int]:
    """The least value that no more labelings than allowed exceed, and how many do.

    Infinite where even one is not allowed: such an interim can claim nothing.
    """
    if allowed + ROUNDING < 1:
        return float("inf"), 0
    ordered = np.sort(values_R)
    above_R = len(ordered) - np.searchsorted(ordered, ordered, side="right")
    place = int(np.argmax(above_R <= allowed + ROUNDING))
    return float(ordered[place]), int(above_R[place])

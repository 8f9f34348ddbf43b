"""Permuting which seeds count as whose, within the seeds of each interim (arXiv:2306.10882)."""

from __future__ import annotations

from itertools import combinations
from math import comb

import numpy as np
from numpy.typing import NDArray

from analysis.statistics.arrays import Floats, generator


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


def sums_of(first: Floats, second: Floats, labels: NDArray[np.bool_]) -> Floats:
    """For each labeling the sum over its interims of the difference of means: (R,)."""
    _, interims, size = labels.shape
    values_KN = np.concatenate(
        [side[: interims * size // 2].reshape(interims, -1) for side in (first, second)], axis=1
    )
    signs_RKN = np.where(labels, 2.0 / size, -2.0 / size)
    return np.asarray(np.einsum("rkn,kn->r", signs_RKN, values_KN))


def bound_of(values_R: Floats, spent: float, level: float, total: int) -> tuple[float, float]:
    """The least value that so few labelings exceed that the level holds, and what that spends."""
    ordered = np.sort(values_R)
    above = len(ordered) - np.searchsorted(ordered, ordered, side="right")
    allowed = np.flatnonzero(spent + above / total <= level + 1e-12)
    if not allowed.size:
        return float("inf"), 0.0
    return float(ordered[allowed[0]]), float(above[allowed[0]] / total)

"""Test paired differences exactly for few seeds: by sign flips, by ranks, and by t."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import stats

from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.statistics.arrays import Floats, generator
from rlhf_lab_analysis.statistics.contrasts import Contrast

# Up to here all 2 ** n choices of signs are tried; for more pairs some are drawn.
EXACT_PAIRS = 16
# Sums that differ by less than this share of all values are ties.
ROUNDING = 1e-12


@dataclass(frozen=True)
class PairedTests:
    """Two-sided p-values that the differences are symmetric about 0, of several tests.

    seeds: pairs; better: in how many the first is larger; smallest: the least p that sign_flip and
    wilcoxon can give with so many pairs.
    """

    seeds: int
    better: int
    difference: float
    t: float
    sign_flip: float
    wilcoxon: float
    is_exact: bool
    smallest: float
    warnings: tuple[str, ...]


def signs_of(pairs: int, repetitions: int, seed: int) -> Floats:
    """All choices of signs, or for many pairs the given ones and random others: (R, pairs)."""
    if pairs <= EXACT_PAIRS:
        bits = np.arange(1 << pairs)[:, None] >> np.arange(pairs) & 1
        return np.asarray(1.0 - 2.0 * bits)
    drawn = generator(seed, "sign flip").integers(0, 2, size=(repetitions, pairs))
    drawn[0] = 0
    return np.asarray(1.0 - 2.0 * drawn)


def sign_flip(values_S: Floats, repetitions: int = 10_000, seed: int = 0) -> float:
    """Two-sided p-value of the mean when signs are flipped (Fisher 1935, section 21)."""
    sums_R = np.abs(signs_of(len(values_S), repetitions, seed) @ values_S)
    return float((sums_R >= sums_R[0] - ROUNDING * np.abs(values_S).sum()).mean())


def wilcoxon(values_S: Floats) -> float:
    """Exact two-sided p-value of the signed ranks (Wilcoxon 1945), zeros left out, ties halved.

    Twice the ranks are whole numbers, so that the sums of all choices of signs can be counted.
    """
    values = values_S[values_S != 0]
    if values.size == 0:
        return 1.0
    doubled = np.rint(2 * stats.rankdata(np.abs(values))).astype(np.int64)
    ways = np.zeros(doubled.sum() + 1)
    ways[0] = 1
    for rank in doubled:
        moved = np.zeros_like(ways)
        moved[rank:] = ways[: len(ways) - rank]
        ways = (ways + moved) / 2
    positive = int(doubled[values > 0].sum())
    tail = min(positive, int(doubled.sum()) - positive)
    return min(1.0, 2 * float(ways[: tail + 1].sum()))


def student(values_S: Floats) -> float:
    """Two-sided p-value of the mean by Student's t; 1 of zeros alone, 0 of one other value."""
    error = float(values_S.std(ddof=1)) / np.sqrt(len(values_S))
    centre = abs(float(values_S.mean()))
    if error == 0:
        return 1.0 if centre == 0 else 0.0
    return float(2 * stats.t.sf(centre / error, len(values_S) - 1))


def paired_tests(
    contrast: Contrast, level: float = 0.95, repetitions: int = 10_000, seed: int = 0
) -> PairedTests:
    """The tests of a paired contrast. Raises UserError if it is not paired."""
    if not contrast.is_paired:
        raise UserError("these conditions are not in pairs: compare equal seeds (in_pairs)")
    values = contrast.parts[0]
    pairs = len(values)
    smallest = 2.0 ** (1 - pairs)
    notes = contrast.warnings
    if smallest > 1 - level:
        notes += (
            f"{pairs} pairs: no p below {smallest:g} is possible by signs or ranks, whatever the "
            f"difference; {int(np.ceil(1 - np.log2(1 - level)))} pairs could reach {1 - level:.3g}",
        )
    return PairedTests(
        pairs,
        int((values > 0).sum()),
        contrast.difference,
        student(values),
        sign_flip(values, repetitions, seed),
        wilcoxon(values),
        pairs <= EXACT_PAIRS,
        smallest,
        notes,
    )

"""Adjust p-values of several comparisons: by Holm, and by the largest t under sign flips."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.statistics.arrays import Floats
from rlhf_lab_analysis.statistics.contrasts import BySeed, by_seed
from rlhf_lab_analysis.statistics.exact import EXACT_PAIRS, ROUNDING, signs_of


@dataclass(frozen=True)
class Comparison:
    """A condition against the control: mean difference, p by itself, and p among all of them."""

    condition: str
    difference: float
    p: float
    adjusted: float


@dataclass(frozen=True)
class Comparisons:
    """All conditions against one control over the seeds that all of them have."""

    control: str
    seeds: tuple[int, ...]
    compared: tuple[Comparison, ...]
    is_exact: bool
    warnings: tuple[str, ...]


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Adjusted p-values (Holm 1979): whatever depends on whatever, all claims hold at once."""
    for name, p in p_values.items():
        if not 0 <= p <= 1:
            raise UserError(f"p of {name} is {p}: pass numbers from 0 to 1")
    found, largest = {}, 0.0
    for place, name in enumerate(sorted(p_values, key=lambda name: p_values[name])):
        largest = max(largest, min(1.0, (len(p_values) - place) * p_values[name]))
        found[name] = largest
    return {name: found[name] for name in p_values}


def largest_t(
    conditions: Mapping[str, BySeed], control: str, repetitions: int = 10_000, seed: int = 0
) -> Comparisons:
    """Each condition against the control, in pairs of seeds (Westfall and Young 1993, step-down).

    The signs of a seed's differences are flipped together, so that what conditions share through
    the control and the seed is kept. Raises UserError if fewer than two seeds are common to all.
    """
    if control not in conditions or len(conditions) < 2:
        raise UserError(f"control={control}: pass one of {', '.join(conditions)}, and others")
    values = {name: by_seed(name, given) for name, given in conditions.items()}
    common = sorted(set.intersection(*(set(given) for given in values.values())))
    odd = sorted(set.union(*(set(given) for given in values.values())) - set(common))
    if len(common) < 2:
        raise UserError(f"{len(common)} seeds are common to all conditions: train at least 2")
    others = [name for name in conditions if name != control]
    differences_SC = np.array(
        [[values[name][seed] - values[control][seed] for name in others] for seed in common]
    )
    single_C, adjusted_C = adjust_p_values(differences_SC, signs_of(len(common), repetitions, seed))
    compared = tuple(
        Comparison(name, float(mean), float(one), float(all_))
        for name, mean, one, all_ in zip(
            others, differences_SC.mean(axis=0), single_C, adjusted_C, strict=True
        )
    )
    notes: tuple[str, ...] = ()
    if odd:
        notes = (f"left out, as not all conditions have them: seeds {odd}",)
    least = 2.0 ** (1 - len(common))
    if least > 0.05:
        notes += (f"{len(common)} seeds: no p below {least:g} is possible by flipping signs",)
    return Comparisons(control, tuple(common), compared, len(common) <= EXACT_PAIRS, notes)


def adjust_p_values(differences_SC: Floats, signs_RS: Floats) -> tuple[Floats, Floats]:
    """p-values of each column by itself, and step-down among all: each (C,).

    Compared is |sum| / sqrt(sum of squares), which rises with |t| and is finite where t is not.
    """
    size_C = np.sqrt((differences_SC**2).sum(axis=0))
    ratio_RC = np.abs(signs_RS @ differences_SC) / np.where(size_C > 0, size_C, 1)
    observed_C = ratio_RC[0] - ROUNDING * len(differences_SC)
    single_C = (ratio_RC >= observed_C).mean(axis=0)
    found_C, largest = np.ones(len(size_C)), 0.0
    order = np.argsort(-observed_C, kind="stable")
    for place, column in enumerate(order):
        highest_R = ratio_RC[:, order[place:]].max(axis=1)
        largest = max(largest, float((highest_R >= observed_C[column]).mean()))
        found_C[column] = largest
    return single_C, found_C

"""Find comparisons that test the same claim, whose intervals are corrected for their number.

A claim is one change of settings, such as N=64 against N=1. It is one claim under all algorithms
and models that it is tested with in settings that are otherwise alike, and those intervals are
corrected for their number. Other changes are other claims, each at its own level.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from rlhf_lab_analysis.comparison.cell import Cell

Pair: TypeAlias = tuple[Cell, Cell]
Setting: TypeAlias = tuple[str, str]
# Settings with which a claim is tested: changing them does not make it another claim.
TESTED_WITH = ("algo", "model")


def count_together(pairs: Sequence[Pair]) -> list[int]:
    """For each comparison of a condition with its baseline, the number of comparisons that test the
    same claim, itself included. The same comparison in two sweeps counts once."""
    claims = [claim_of(*pair) for pair in pairs]
    distinct = {
        (claim, *(one.setting_items for one in pair))
        for claim, pair in zip(claims, pairs, strict=True)
    }
    return [sum(claim == other for other, *_ in distinct) for claim in claims]


def claim_of(cell: Cell, baseline: Cell) -> tuple[frozenset[Setting], ...]:
    """The settings that change, before and after, and those that stay, algorithm and model left
    out where they are not what changes."""
    after, before = set(cell.setting_items), set(baseline.setting_items)
    groups = {key.partition(".")[0] for key, _ in before ^ after}
    free = [part for part in TESTED_WITH if part not in groups]
    stay = {item for item in before & after if item[0].partition(".")[0] not in free}
    return frozenset(before - after), frozenset(after - before), frozenset(stay)

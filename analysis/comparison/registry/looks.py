"""Find how often claims looked at a difference, by which the error of the last look is divided."""

from __future__ import annotations

from collections.abc import Sequence

from rlhf_lab_analysis.comparison.cell import Cell, Training
from rlhf_lab_analysis.comparison.claims import Pair
from rlhf_lab_analysis.comparison.registry.comparisons import chosen_by, pairs
from rlhf_lab_analysis.comparison.registry.definitions import read_registries
from rlhf_lab_analysis.comparison.selection import Selection


def looks_of(compared: Sequence[Pair]) -> list[int]:
    """For each comparison of a condition with its baseline the most looks of any claim about what a
    change does to its win-rate at the end; 1 where there is no claim, or one that looked once."""
    cells = Selection(tuple(dict.fromkeys(cell for pair in compared for cell in pair)), ())
    looks: dict[frozenset[Training], int] = {}
    for claim in (claim for file in read_registries() for claim in file.claims):
        is_change = claim.varied and claim.part is None
        if claim.looks > 1 and is_change and claim.measure.name == "quality":
            for pair, *_ in pairs(claim, chosen_by(claim, cells)):
                looks[key_of(pair)] = max(claim.looks, looks.get(key_of(pair), 1))
    return [looks.get(key_of(pair), 1) for pair in compared]


def key_of(pair: Sequence[Cell]) -> frozenset[Training]:
    """Two conditions, whichever sweep they are of and whichever comes first."""
    return frozenset(cell.training for cell in pair)


def family_text(together: int, looks: int = 1) -> str:
    """How many intervals hold at once, and how many looks there were: `1 of 4 comparisons, 2
    looks`."""
    family = f"1 of {together} comparisons" if together > 1 else "by itself"
    return f"{family}, {looks} looks" if looks > 1 else family

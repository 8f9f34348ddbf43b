"""Find numbers of conditions by stage seed and RL seed, where several stage seeds have several.

Runs of one RL seed train on the same prompts in the same order, whatever their stage seed. What
they have in common is no chance of a stage seed, so that an interval over stage seeds holds for the
RL seeds that there are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from rlhf_lab_analysis.comparison.selection import Cell

Crossed: TypeAlias = dict[int, dict[int, float]]


def by_both_seeds(
    cells: Sequence[Cell], number: Callable[[Sequence[Cell]], Mapping[int, float]]
) -> Crossed:
    """A number of the conditions by stage seed and RL seed, where several stage seeds have the same
    two or more RL seeds in all conditions: of those that have most; nothing elsewhere."""
    both = set.intersection(*(set(cell.members) for cell in cells))
    seeds = sorted({seed for stage, seed in both if stage})
    if len(seeds) < 2:
        return {}
    numbers: Crossed = {}
    for seed in seeds:
        kept = {pair for pair in both if pair[0] and pair[1] == seed}
        held = [cell.restricted(kept) for cell in cells]
        for stage, value in number(held).items():
            numbers.setdefault(stage, {})[seed] = value
    sets = Counter(tuple(sorted(one)) for one in numbers.values())
    usual = max(sets, key=lambda one: (len(one), sets[one]), default=())
    found = {stage: one for stage, one in sorted(numbers.items()) if tuple(sorted(one)) == usual}
    return found if len(usual) > 1 and len(found) > 1 else {}

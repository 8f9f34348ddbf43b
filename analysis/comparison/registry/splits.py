"""Split the variance of differences that claims measure into stage seeds, RL seeds and the rest.

Runs of one RL seed train on the same prompts in the same order, whatever their stage seed. This
common part does not average out over stage seeds, so that an interval over stage seeds covers the
RL seeds that were run and no others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rlhf_lab_analysis.comparison.cell import Cell
from rlhf_lab_analysis.comparison.registry.answers import Criteria
from rlhf_lab_analysis.comparison.registry.comparisons import chosen_by, effect, pairs
from rlhf_lab_analysis.comparison.registry.definitions import Definition
from rlhf_lab_analysis.comparison.registry.labels import change_text
from rlhf_lab_analysis.comparison.registry.measures import Effects
from rlhf_lab_analysis.comparison.registry.settings import setting_of
from rlhf_lab_analysis.comparison.selection import Selection
from rlhf_lab_analysis.statistics.variance_parts import VarianceParts, variance_parts


@dataclass(frozen=True)
class Split:
    """A claim in a setting with several RL seeds in each of several stage seeds. label: what
    changes. stages: how many there are. means: of each RL seed."""

    claim: Definition
    setting: str
    label: str
    stages: int
    means: dict[int, float]
    parts: VarianceParts


def splits(claim: Definition, selection: Selection, criteria: Criteria) -> Iterator[Split]:
    """Every setting of a claim about a change whose runs are crossed."""
    if claim.measure.of_many or not claim.varied or claim.part:
        return

    def less(compared: Sequence[Cell]) -> Effects:
        before, after = compared
        return effect(claim.measure, after, before, criteria)

    for pair, *_ in pairs(claim, chosen_by(claim, selection)):
        if numbers := by_both_seeds(pair, less):
            seeds = next(iter(numbers.values()))
            means = {s: sum(row[s] for row in numbers.values()) / len(numbers) for s in seeds}
            yield Split(
                claim,
                setting_of(claim, pair),
                change_text(claim, pair),
                len(numbers),
                means,
                variance_parts(numbers),
            )


def by_both_seeds(
    cells: Sequence[Cell], number: Callable[[Sequence[Cell]], Mapping[int, float]]
) -> dict[int, dict[int, float]]:
    """A number of the conditions by stage seed and RL seed, where several stage seeds have the same
    two or more RL seeds in all conditions: of those that have most; nothing elsewhere."""
    both = set.intersection(*(set(cell.members) for cell in cells))
    seeds = sorted({seed for stage, seed in both if stage})
    if len(seeds) < 2:
        return {}
    numbers: dict[int, dict[int, float]] = {}
    for seed in seeds:
        kept = {pair for pair in both if pair[0] and pair[1] == seed}
        held = [cell.restricted(kept) for cell in cells]
        for stage, value in number(held).items():
            numbers.setdefault(stage, {})[seed] = value
    sets = Counter(tuple(sorted(one)) for one in numbers.values())
    usual = max(sets, key=lambda one: (len(one), sets[one]), default=())
    found = {stage: one for stage, one in sorted(numbers.items()) if tuple(sorted(one)) == usual}
    return found if len(usual) > 1 and len(found) > 1 else {}

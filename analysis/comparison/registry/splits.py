"""Split what differences of claims vary by into stage seeds, RL seeds and the rest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rlhf_lab_analysis.comparison.crossed_seeds import by_both_seeds
from rlhf_lab_analysis.comparison.registry.answers import Criteria
from rlhf_lab_analysis.comparison.registry.comparisons import chosen_by, effect, pairs
from rlhf_lab_analysis.comparison.registry.definitions import Definition
from rlhf_lab_analysis.comparison.registry.labels import change_text
from rlhf_lab_analysis.comparison.registry.measures import Effects
from rlhf_lab_analysis.comparison.registry.settings import setting_of
from rlhf_lab_analysis.comparison.selection import Cell, Selection
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
    if "change" not in claim.row or claim.part is not None:
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

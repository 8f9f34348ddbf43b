"""Split what differences of claims vary by into stage seeds, RL seeds and the rest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rlhf_lab_analysis.comparison.claims import Pair
from rlhf_lab_analysis.comparison.registry.answers import Criteria
from rlhf_lab_analysis.comparison.registry.comparisons import chosen_by, effect, pairs
from rlhf_lab_analysis.comparison.registry.definitions import Definition
from rlhf_lab_analysis.comparison.registry.labels import change_text
from rlhf_lab_analysis.comparison.registry.settings import setting_of
from rlhf_lab_analysis.comparison.selection import Selection, in_common
from rlhf_lab_analysis.statistics.variance_parts import VarianceParts, variance_parts


@dataclass(frozen=True)
class Crossed:
    """A claim in a setting with several seeds in each of several stage seeds. label: what changes.
    stages, seeds: how many of them."""

    claim: Definition
    setting: str
    label: str
    stages: int
    seeds: int
    parts: VarianceParts


def crossed(claim: Definition, selection: Selection, criteria: Criteria) -> Iterator[Crossed]:
    """Every setting of a claim about a change whose runs are crossed."""
    if "change" not in claim.row or claim.part is not None:
        return
    for pair, *_ in pairs(claim, chosen_by(claim, selection)):
        numbers = by_both_seeds(claim, pair, criteria)
        if len(numbers) > 1:
            yield Crossed(
                claim,
                setting_of(claim, pair),
                change_text(claim, pair),
                len(numbers),
                len(next(iter(numbers.values()))),
                variance_parts(numbers),
            )


def by_both_seeds(claim: Definition, pair: Pair, criteria: Criteria) -> dict[int, dict[int, float]]:
    """The effect by stage seed and seed, of the stage seeds that have most seeds; nothing where
    that is one."""
    before, after = in_common(*pair)
    both = {seeds for seeds in before.members if seeds[0] and seeds in after.members}
    numbers: dict[int, dict[int, float]] = {}
    for seed in sorted({seed for _, seed in both}):
        kept = {seeds for seeds in both if seeds[1] == seed}
        one, other = after.restricted(kept), before.restricted(kept)
        for stage, value in effect(claim.measure, one, other, criteria).items():
            numbers.setdefault(stage, {})[seed] = value
    most = max(map(len, numbers.values()), default=0)
    return {stage: one for stage, one in numbers.items() if len(one) == most > 1}

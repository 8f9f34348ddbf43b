"""The page's section on stage seeds and RL seeds: how much differences vary between each.

Runs of one RL seed train on the same prompts in the same order, whatever their stage seed. This
common part does not average out over stage seeds, so that an interval over stage seeds covers the
RL seeds that were run and no others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from rlhf_lab_analysis.comparison.claims import Pair
from rlhf_lab_analysis.comparison.registry.answers import Criteria, Unit, setting_of
from rlhf_lab_analysis.comparison.registry.comparisons import (
    change_text,
    chosen_by,
    pairs,
)
from rlhf_lab_analysis.comparison.registry.decisions import Decisions
from rlhf_lab_analysis.comparison.registry.definitions import Definition
from rlhf_lab_analysis.comparison.selection import Selection
from rlhf_lab_analysis.statistics.variance_parts import variance_parts

HEAD = (
    "claim",
    "setting",
    "difference",
    "stage seeds, RL seeds",
    "mean of each RL seed",
    "between stage seeds",
    "between RL seeds",
    "rest",
    "over stage seeds",
    "over both",
)


def crossed_rows(
    found: Sequence[Decisions], selection: Selection, criteria: Criteria
) -> tuple[tuple[str, ...], ...]:
    """A row for each claim and setting whose runs have several RL seeds in each stage seed."""
    claims = [claim for decisions in found for claim in decisions.registry.claims]
    return tuple(row for claim in claims for row in rows_of(claim, selection, criteria))


def rows_of(
    claim: Definition, selection: Selection, criteria: Criteria
) -> Iterator[tuple[str, ...]]:
    """Every setting of a claim about a change whose runs are crossed."""
    if claim.measure.of_many or not claim.varied or claim.part:
        return
    for pair, *_ in pairs(claim, chosen_by(claim, selection)):
        if numbers := by_both_seeds(claim, pair, criteria):
            yield row(claim, pair, numbers)


def by_both_seeds(claim: Definition, pair: Pair, criteria: Criteria) -> dict[int, dict[int, float]]:
    """The difference by stage seed and RL seed, where several stage seeds have the same two or more
    RL seeds in both conditions: of those that have most; nothing elsewhere."""
    both = set.intersection(*(set(cell.members) for cell in pair))
    seeds = sorted({seed for stage, seed in both if stage})
    if len(seeds) < 2:
        return {}
    numbers: dict[int, dict[int, float]] = {}
    for seed in seeds:
        kept = {pair for pair in both if pair[0] and pair[1] == seed}
        before, after = (cell.restricted(kept) for cell in pair)
        for stage, value in claim.measure.effects(after, before, criteria).items():
            numbers.setdefault(stage, {})[seed] = value
    sets = Counter(tuple(sorted(one)) for one in numbers.values())
    usual = max(sets, key=lambda one: (len(one), sets[one]), default=())
    found = {stage: one for stage, one in sorted(numbers.items()) if tuple(sorted(one)) == usual}
    return found if len(usual) > 1 and len(found) > 1 else {}


def row(claim: Definition, pair: Pair, numbers: dict[int, dict[int, float]]) -> tuple[str, ...]:
    parts, unit = variance_parts(numbers), claim.measure.unit
    scale = 100 if unit is Unit.points else 1
    words = "of the logarithm" if unit is Unit.times else str(unit)
    spreads = [f"{scale * part:.2f} {words}" for part in (parts.rows, parts.columns, parts.rest)]
    spreads[1] += f" (p = {parts.p_columns:.3f})"
    intervals = [
        f"{scale * parts.mean:+.1f} [{scale * (parts.mean - half):+.1f}, "
        f"{scale * (parts.mean + half):+.1f}] (95%)"
        for half in (parts.of_stages, parts.of_both)
    ]
    seeds = next(iter(numbers.values()))
    means = [sum(one[seed] for one in numbers.values()) / len(numbers) for seed in seeds]
    return (
        claim.name,
        setting_of(pair),
        change_text(claim, pair),
        f"{len(numbers)}, {len(means)}",
        ", ".join(f"{scale * mean:+.1f}" for mean in means),
        *spreads,
        *intervals,
    )

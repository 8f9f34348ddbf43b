"""Decide claims: verdicts, the power of their plans, and the seeds that would decide open ones."""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from typing import TypeAlias

from rlhf_lab_analysis.comparison.cell import Cell
from rlhf_lab_analysis.comparison.claims import count_together
from rlhf_lab_analysis.comparison.families import Settings
from rlhf_lab_analysis.comparison.registry.answers import (
    Answer,
    Criteria,
    Number,
    Unit,
    runs_of,
    setting_of,
)
from rlhf_lab_analysis.comparison.registry.comparisons import Compared
from rlhf_lab_analysis.comparison.registry.definitions import Definition, Registry
from rlhf_lab_analysis.comparison.registry.looks import family_text
from rlhf_lab_analysis.comparison.registry.measures import Effects, Measure
from rlhf_lab_analysis.comparison.registry.planning import needed_for
from rlhf_lab_analysis.comparison.registry.settings import Setting, settings_of_claim
from rlhf_lab_analysis.comparison.selection import Selection
from rlhf_lab_analysis.statistics.contrasts import difference, matched
from rlhf_lab_analysis.statistics.decisions import (
    NO_WIDTH,
    Verdict,
    all_of,
    decide,
    has_width,
    options_of,
)
from rlhf_lab_analysis.statistics.power import Aim, power
from rlhf_lab_analysis.statistics.results import Estimate

Condition: TypeAlias = tuple[str, Settings]


@dataclass(frozen=True)
class Decision:
    """A claim in one setting. planned: power of the plan with the seeds that there are. needed:
    seeds that would show or refute it at the next look, and what they cost in core-hours; None
    where it is decided, and where thousands would not. together: comparisons whose intervals hold
    at once with its own. A claim without a plan has no power."""

    claim: Definition
    answer: Answer
    planned: float | None = None
    needed: tuple[int, float] | None = None
    together: int = 1

    @property
    def family(self) -> str:
        """How many comparisons hold together, and by how many looks the error is divided."""
        return family_text(self.together, self.claim.looks)

    @property
    def expected(self) -> str:
        """The difference that was planned with, and the power of that plan with these seeds."""
        if self.planned is None:
            return ""
        truth, unit = self.claim.row["plan"]["truth"], self.claim.measure.unit
        value = unit.text(math.exp(truth) if unit is Unit.times else truth)
        return f"{value} {unit}, power {self.planned:.2f}"


@dataclass(frozen=True)
class Decisions:
    """What a registry comes to. idle: claims whose treatment changed nothing. waiting: claims
    without runs."""

    registry: Registry
    decided: tuple[Decision, ...]
    idle: tuple[str, ...]
    waiting: tuple[Definition, ...]


def condition_of(cell: Cell) -> Condition:
    """A condition, in whichever sweep it is."""
    return cell.env, cell.setting_items


def decide_all(
    registry: Registry, selection: Selection, criteria: Criteria, read: Set[Condition] = frozenset()
) -> Decisions:
    """All claims that these conditions bear on. read: those among which nothing is compared."""
    found = [(claim, *decide_claim(claim, selection, criteria, read)) for claim in registry.claims]
    return Decisions(
        registry,
        tuple(one for _, decided, _ in found for one in decided),
        tuple(line for *_, idle in found for line in idle),
        tuple(claim for claim, decided, idle in found if not decided and not idle),
    )


def decide_claim(
    claim: Definition, selection: Selection, criteria: Criteria, read: Set[Condition] = frozenset()
) -> tuple[list[Decision], list[str]]:
    """The verdicts in every setting, and a line for each in which the treatment changed nothing."""
    found = [
        one
        for one in settings_of_claim(claim, selection, criteria)
        if not {*map(condition_of, one.cells)} <= read
    ]
    acted = [one for one in found if has_acted(one)]
    counts = count_together([one.asked for one in acted])
    decided = [
        decision(claim, one, count, criteria) for one, count in zip(acted, counts, strict=True)
    ]
    idle = [
        f"{claim.name}, {one.name or 'all'}: nothing differs, so that it gets no verdict"
        for one in found
        if one not in acted
    ]
    return decided, idle


def has_acted(setting: Setting) -> bool:
    """Whether any number of any seed differs from zero: runs repeat bit for bit."""
    return any(value for part in setting.parts for value in part.effects.values())


def decision(claim: Definition, setting: Setting, together: int, criteria: Criteria) -> Decision:
    """The verdict in one of `together` settings, whose intervals hold at once."""
    margin, is_single = margin_of(claim, criteria), len(setting.parts) == 1
    shared = (together if is_single else 1) * claim.looks
    if is_single:
        numbers, verdict = tested(claim, setting.parts[0], shared, margin)
    else:
        numbers, verdict = conjunction(claim, setting.parts, margin)
        together = len(setting.parts) if verdict is Verdict.does_not_hold else 1
    warned = dict.fromkeys(text for number in numbers for text in number.estimate.warnings)
    made = Answer(
        claim.row["question"],
        setting.parts[0].text,
        claim.source,
        setting_of(setting.cells),
        verdict,
        evidence(numbers, setting),
        tuple(numbers),
        runs_of(setting.seeds),
        margin,
        tuple(warned),
        tuple(dict.fromkeys(cell.key for cell in setting.cells)),
    )
    if claim.is_general:
        return Decision(claim, made, together=together)
    aim = aim_of(claim, shared, margin)
    later = replace(aim, together=shared + shared // claim.looks)
    seeds = min(len(part.effects) for part in setting.parts)
    return Decision(
        claim,
        made,
        power(aim, claim.row["plan"]["spread"], seeds),
        needed_for(later, setting) if verdict is Verdict.cannot_tell else None,
        together,
    )


def margin_of(claim: Definition, criteria: Criteria) -> float:
    """The margin in the scale of the effects: that of a ratio is a logarithm."""
    margin = claim.margin(criteria.margin)
    return math.log1p(margin) if claim.measure.unit is Unit.times else margin


def tested(
    claim: Definition, part: Compared, together: int, margin: float
) -> tuple[list[Number], Verdict]:
    """The number of a single comparison, what is shown beside it, and what it shows."""
    estimate = estimate_of(claim, part.effects, part, together)
    beside = [
        number_of(label, measure, estimate_of(claim, effects, part, together))
        for label, measure, effects in part.beside
        if effects
    ]
    number = number_of(part.label, claim.measure, estimate)
    return [number, *beside], decide(estimate, claim.shows, margin)


def conjunction(
    claim: Definition, parts: Sequence[Compared], margin: float
) -> tuple[list[Number], Verdict]:
    """The numbers of several comparisons that must all show the claim, each at its own level; those
    that hold together where one of them shows the opposite."""
    single, joint = (
        [estimate_of(claim, part.effects, part, count * claim.looks) for part in parts]
        for count in (1, len(parts))
    )
    each, corrected = (
        [decide(one, claim.shows, margin) for one in every] for every in (single, joint)
    )
    verdict = all_of(each, corrected)
    shown = joint if verdict is Verdict.does_not_hold else single
    found = [
        number_of(part.label, claim.measure, one) for part, one in zip(parts, shown, strict=True)
    ]
    return found, verdict


def estimate_of(claim: Definition, effects: Effects, part: Compared, together: int) -> Estimate:
    """The mean effect with its interval; seeds without an effect are named in its warnings. What is
    fitted to all seeds has an interval of its own."""
    options = options_of(claim.shows, together)
    if part.fitted and effects is part.effects:
        return part.fitted(options)
    seeds = dict.fromkeys(seed for cell in part.cells for seed in cell.seeds)
    return difference(matched(effects, dict.fromkeys(seeds, 0.0)), options)


def number_of(label: str, measure: Measure, estimate: Estimate) -> Number:
    """The estimate as it is shown: ratios are no logarithms any more."""
    if measure.unit is Unit.times:
        point, low, high = (math.exp(x) for x in (estimate.point, estimate.low, estimate.high))
        estimate = Estimate(estimate.name, point, low, high, estimate.basis)
    return Number(label, estimate, measure.unit)


def evidence(numbers: Sequence[Number], setting: Setting) -> str:
    """The numbers in words, and why one decides nothing that has no width."""
    deciding = {part.label for part in setting.parts}
    return "; ".join(
        f"{one.label}: {one.text}"
        + (f": {NO_WIDTH}" if one.label in deciding and not has_width(one.estimate) else "")
        for one in numbers
    )


def aim_of(claim: Definition, together: int, margin: float) -> Aim:
    """What the plan expects, at a level of so many comparisons and looks."""
    return Aim(claim.shows, margin, claim.row["plan"]["truth"], together)

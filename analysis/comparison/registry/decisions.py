"""Decide claims: verdicts, the power of their plans, and the seeds that would decide open ones."""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from itertools import starmap

import numpy as np

from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.comparison.cell import Cell, Training
from rlhf_lab_analysis.comparison.claims import count_together
from rlhf_lab_analysis.comparison.registry.answers import (
    Answer,
    Criteria,
    Number,
    Unit,
    runs_of,
    setting_of,
)
from rlhf_lab_analysis.comparison.registry.comparisons import (
    Compared,
    Setting,
    settings_of_claim,
)
from rlhf_lab_analysis.comparison.registry.definitions import Definition, Registry
from rlhf_lab_analysis.comparison.registry.looks import family_text
from rlhf_lab_analysis.comparison.registry.measures import Effects, Measure
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
from rlhf_lab_analysis.statistics.power import Aim, chance_of_verdict, least, power
from rlhf_lab_analysis.statistics.results import Estimate

WANTED_POWER = 0.8


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


def decide_all(
    registry: Registry, selection: Selection, criteria: Criteria, read: Set[Training] = frozenset()
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
    claim: Definition, selection: Selection, criteria: Criteria, read: Set[Training] = frozenset()
) -> tuple[list[Decision], list[str]]:
    """The verdicts in every setting, and a line for each in which the treatment changed nothing:
    runs repeat bit for bit, so that no number of any seed differs from zero."""
    acted, idle = [], []
    for one in settings_of_claim(claim, selection, criteria):
        if {cell.training for cell in one.cells} <= read:
            continue
        if any(value for part in one.parts for value in part.effects.values()):
            acted.append(one)
        else:
            where = f"{claim.name}, {setting_of(one.cells)}, {one.parts[0].label}"
            idle.append(f"{where}: nothing differs, so that it gets no verdict")
    counts = count_together([one.requested for one in acted])
    decided = [
        decision(claim, one, count, criteria) for one, count in zip(acted, counts, strict=True)
    ]
    return decided, idle


def decision(claim: Definition, setting: Setting, together: int, criteria: Criteria) -> Decision:
    """The verdict in one of `together` settings, whose intervals hold at once.

    A claim of several parts, which must all hold, has each at its own level; where one of them
    shows the opposite, the numbers are those that hold together.
    """
    margin, parts = claim.measure.margin_of(criteria), setting.parts
    counts = (together, together) if len(parts) == 1 else (1, len(parts))
    single, joint = (
        [estimate_of(claim, part, part.effects, count) for part in parts] for count in counts
    )
    each, corrected = (
        [decide(one, claim.shows, margin) for one in every] for every in (single, joint)
    )
    verdict = all_of(each, corrected)
    fails = verdict is Verdict.does_not_hold
    numbers = [
        number_of(part.label, claim.measure, one)
        for part, one in zip(parts, joint if fails else single, strict=True)
    ]
    numbers += [
        number_of(label, measure, estimate_of(claim, parts[0], effects, counts[0]))
        for label, measure, effects in parts[0].beside
        if effects
    ]
    warned = dict.fromkeys(text for number in numbers for text in number.estimate.warnings)
    made = Answer(
        claim.question,
        parts[0].text,
        claim.source,
        setting_of(setting.cells),
        verdict,
        evidence(numbers, len(parts)),
        tuple(numbers),
        runs_of(setting.seeds),
        margin,
        tuple(warned),
        tuple(dict.fromkeys(cell.key for cell in setting.cells)),
    )
    found = Decision(claim, made, together=counts[1] if fails else counts[0])
    if claim.is_general:
        return found
    plan, seeds = claim.row["plan"], min(len(part.effects) for part in parts)
    aim = Aim(claim.shows, margin, plan["truth"], counts[0] * claim.looks)
    later = replace(aim, together=counts[0] * (claim.looks + 1))
    is_open = verdict is Verdict.cannot_tell
    return replace(
        found,
        planned=power(aim, plan["spread"], seeds),
        needed=needed_for(later, setting) if is_open else None,
    )


def estimate_of(claim: Definition, part: Compared, effects: Effects, together: int) -> Estimate:
    """The mean effect with its interval; seeds without an effect are named in its warnings. What is
    fitted to all seeds has an interval of its own."""
    options = options_of(claim.shows, together * claim.looks)
    if part.fitted:
        return part.fitted(options)
    seeds = dict.fromkeys(seed for cell in part.cells for seed in cell.seeds)
    return difference(matched(effects, dict.fromkeys(seeds, 0.0)), options)


def number_of(label: str, measure: Measure, estimate: Estimate) -> Number:
    """The estimate as it is shown: that of a ratio is no logarithm."""
    if measure.unit is Unit.times:
        point, low, high = (math.exp(x) for x in (estimate.point, estimate.low, estimate.high))
        estimate = Estimate(estimate.name, point, low, high, estimate.basis)
    return Number(label, estimate, measure.unit)


def evidence(numbers: Sequence[Number], deciding: int) -> str:
    """The numbers in words, and why one of those that decide, the first ones, has no width."""
    reasons = [
        f": {NO_WIDTH}" if place < deciding and not has_width(one.estimate) else ""
        for place, one in enumerate(numbers)
    ]
    return "; ".join(
        f"{one.label}: {one.text}{why}" for one, why in zip(numbers, reasons, strict=True)
    )


def needed_for(aim: Aim, setting: Setting) -> tuple[int, float] | None:
    """The seeds with which an undecided claim would be shown, or refuted, if what was measured is
    true, and the core-hours of their runs; None where thousands do not suffice, where seeds do not
    differ, which gives no spread to plan with, and for a fit, whose interval is not of a mean."""
    if any(part.fitted or not np.ptp([*part.effects.values()]) for part in setting.parts):
        return None
    try:
        seeds = least_of_parts(aim, setting.parts)
    except UserError:
        return None
    return seeds, seeds * sum(core_seconds(cell) for cell in setting.cells) / 3600


def least_of_parts(aim: Aim, parts: Sequence[Compared]) -> int:
    """The least number of seeds that decides a claim of these parts (`decisions.all_of`): all must
    be shown, or one refuted at the level that is corrected for their number."""

    def seeds(one: Aim, values: Sequence[float]) -> int:
        return least(one, float(np.std(values, ddof=1)), WANTED_POWER, 1, chance_of_verdict)

    effects = [[*part.effects.values()] for part in parts]
    aims = [(replace(aim, truth=float(np.mean(values))), values) for values in effects]
    corrected = len(parts) * aim.together
    refuted = [(replace(one, together=corrected), own) for one, own in aims if not one.is_true]
    return min(starmap(seeds, refuted)) if refuted else max(starmap(seeds, aims))


def core_hours(cell: Cell) -> float:
    """What all runs of a condition took of one core."""
    return core_seconds(cell) * len(cell.seeds) / 3600


def core_seconds(cell: Cell) -> float:
    """What the runs of a seed take of one core: training and evaluation."""
    trained = cell.at_end("x/device_hours")
    hours = sum(trained.values()) / len(trained)
    judged = [
        float(rows["timing/seconds"].sum())
        for rows in cell.rows.values()
        if "timing/seconds" in rows
    ]
    each = hours * 3600 + (sum(judged) / len(judged) if judged else 0.0)
    return each * cell.num_runs / len(cell.seeds)

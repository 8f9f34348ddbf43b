"""Decide claims: verdicts, and the power with which they were planned and reached."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.comparison.questions.answers import (
    Answer,
    Claim,
    Criteria,
    Number,
    Unit,
    answer,
    change,
)
from rlhf_lab_analysis.comparison.registry.comparisons import (
    Compared,
    Setting,
    settings_of_claim,
)
from rlhf_lab_analysis.comparison.registry.definitions import Definition, Registry
from rlhf_lab_analysis.comparison.selection import Cell, Selection
from rlhf_lab_analysis.statistics.decisions import NO_WIDTH, Verdict, all_of, decide, has_width
from rlhf_lab_analysis.statistics.power import Aim, least, power
from rlhf_lab_analysis.statistics.results import Estimate

WANTED_POWER = 0.8


@dataclass(frozen=True)
class Decision:
    """A claim in one setting. planned: power of the plan with the seeds that there are; reached:
    the same with the spread that the runs have. needed: seeds that would decide it, and what they
    cost in core-hours; None where it is decided, and where no number would."""

    claim: Definition
    answer: Answer
    planned: float
    reached: float | None
    needed: tuple[int, float] | None = None


@dataclass(frozen=True)
class Decisions:
    """What a registry comes to. idle: claims whose treatment changed nothing. waiting: claims
    without runs."""

    registry: Registry
    decided: tuple[Decision, ...]
    idle: tuple[str, ...]
    waiting: tuple[Definition, ...]


def decide_all(registry: Registry, selection: Selection, criteria: Criteria) -> Decisions:
    """All claims that these conditions bear on."""
    decided: list[Decision] = []
    idle: list[str] = []
    waiting: list[Definition] = []
    for claim in registry.claims:
        found = settings_of_claim(claim, selection, criteria)
        acted = [one for one in found if has_acted(one)]
        idle += [
            f"{claim.name}, {one.name or 'all'}: nothing differs, so that it gets no verdict"
            for one in found
            if one not in acted
        ]
        decided += [decision(claim, one, len(acted), criteria) for one in acted]
        if not found:
            waiting.append(claim)
    return Decisions(registry, tuple(decided), tuple(idle), tuple(waiting))


def has_acted(setting: Setting) -> bool:
    """Whether any number of any seed differs from zero: runs repeat bit for bit."""
    return any(value for part in setting.parts for value in part.effects.values())


def decision(claim: Definition, setting: Setting, together: int, criteria: Criteria) -> Decision:
    """The verdict in one of `together` settings, whose intervals hold at once."""
    own = replace(criteria, margin=margin_of(claim))
    if len(setting.parts) == 1:
        numbers, verdict = tested(claim, setting.parts, together)
    else:
        numbers, verdict = conjunction(claim, setting.parts)
    made = answer(
        Claim(claim.row["question"], claim.row["text"], claim.source),
        own,
        setting.cells,
        verdict,
        [number for number, _ in numbers],
        "; ".join(evidence(claim, number) for number, _ in numbers),
    )
    count = together if len(setting.parts) == 1 else 1
    seeds = min(len(part.effects) for part in setting.parts)
    spreads = [spread_of(part) for part in setting.parts]
    return Decision(
        claim,
        made,
        planned_power(claim, claim.row["plan"]["spread"], seeds, count),
        min(planned_power(claim, spread, seeds, count) for spread in spreads)
        if all(spreads)
        else None,
        needed_for(claim, setting, max(spreads), count) if verdict is Verdict.cannot_tell else None,
    )


def margin_of(claim: Definition) -> float:
    """The margin in the scale of the effects: that of a ratio is a logarithm."""
    return math.log1p(claim.margin) if claim.measure.unit is Unit.times else claim.margin


def tested(
    claim: Definition, parts: Sequence[Compared], together: int
) -> tuple[list[tuple[Number, Estimate]], Verdict]:
    """The number of a single comparison, and what it shows."""
    estimate = estimate_of(claim, parts[0], together)
    verdict = decide(estimate, claim.shows, margin_of(claim))
    return [(number_of(claim, parts[0], estimate), estimate)], verdict


def conjunction(
    claim: Definition, parts: Sequence[Compared]
) -> tuple[list[tuple[Number, Estimate]], Verdict]:
    """The numbers of several comparisons that must all show the claim, each at its own level; those
    that hold together where one of them shows the opposite."""
    margin = margin_of(claim)
    single = [estimate_of(claim, part, 1) for part in parts]
    joint = [estimate_of(claim, part, len(parts)) for part in parts]
    each, corrected = (
        [decide(one, claim.shows, margin) for one in every] for every in (single, joint)
    )
    verdict = all_of(each, corrected)
    shown = joint if verdict is Verdict.does_not_hold else single
    found = [(number_of(claim, part, one), one) for part, one in zip(parts, shown, strict=True)]
    return found, verdict


def estimate_of(claim: Definition, part: Compared, together: int) -> Estimate:
    return change(part.effects, dict.fromkeys(part.effects, 0.0), together, claim.shows)


def number_of(claim: Definition, part: Compared, estimate: Estimate) -> Number:
    """The estimate as it is shown: ratios are no logarithms any more."""
    if claim.measure.unit is Unit.times:
        point, low, high = (math.exp(x) for x in (estimate.point, estimate.low, estimate.high))
        estimate = Estimate(estimate.name, point, low, high, estimate.basis)
    return Number(part.label, estimate, claim.measure.unit)


def evidence(claim: Definition, number: Number) -> str:
    text = f"{number.label}: {number.text}"
    return text if has_width(number.estimate) else f"{text}: {NO_WIDTH}"


def spread_of(part: Compared) -> float:
    """The standard deviation of an effect over seeds."""
    return float(np.std(list(part.effects.values()), ddof=1)) if len(part.effects) > 1 else 0.0


def planned_power(claim: Definition, spread: float, seeds: int, together: int) -> float:
    """The power to show the claim if the planned difference is true."""
    return power(aim_of(claim, claim.row["plan"]["truth"], together), spread, seeds)


def aim_of(claim: Definition, truth: float, together: int) -> Aim:
    return Aim(claim.shows, margin_of(claim), truth, together)


def needed_for(
    claim: Definition, setting: Setting, spread: float, together: int
) -> tuple[int, float] | None:
    """The seeds with which an undecided claim would be shown if what was measured is true, and the
    core-hours of their runs; None where no number of seeds shows it."""
    try:
        seeds = max(
            least(aim_of(claim, mean_of(part), together), spread, WANTED_POWER, 1)
            for part in setting.parts
        )
    except UserError:
        return None
    return seeds, seeds * sum(core_seconds(cell) for cell in setting.cells) / 3600


def mean_of(part: Compared) -> float:
    return float(np.mean(list(part.effects.values())))


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

"""An answer: a claim, the numbers that bear on it, and one of three verdicts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from analysis.selection import Cell
from analysis.statistics.contrasts import BySeed, difference, matched
from analysis.statistics.results import Estimate, Method, Options
from analysis.tables.table import count

LEVEL = 0.95


class Verdict(StrEnum):
    """What the runs show of a claim."""

    holds = "holds"
    does_not_hold = "does not hold"
    cannot_tell = "cannot tell"


class Unit(StrEnum):
    """In what a number is told: `points` are hundredths of a share."""

    points = "points"
    times = "times"
    nats = "nats"


@dataclass(frozen=True)
class Number:
    """An estimate with what it is of. Shares are kept as shares and told in points."""

    label: str
    estimate: Estimate
    unit: Unit = Unit.points

    @property
    def text(self) -> str:
        """Such as `-3.1 [-5.0, -1.2] points`."""
        scale, sign = (100, "+") if self.unit is Unit.points else (1, "+")
        digits, sign = (2, "") if self.unit is Unit.times else (1, sign)
        point, low, high = (
            f"{scale * value:{sign}.{digits}f}"
            for value in (self.estimate.point, self.estimate.low, self.estimate.high)
        )
        return f"{point} [{low}, {high}] {self.unit}"


@dataclass(frozen=True)
class Asked:
    """What is compared by, and the largest difference that does not matter, stated beforehand.

    quality: a share from 0 to 1 of an evaluated version; margin: of it. drift: nats.
    """

    quality: str = "gold/win_rate"
    margin: float = 0.02
    drift: str = "kl/sft_k1"


@dataclass(frozen=True)
class Answer:
    """A claim and its verdict. where: who makes the claim. scale: the model and task that it was
    tested at. basis: which runs it stands on."""

    question: str
    claim: str
    where: str
    scale: str
    verdict: Verdict
    reason: str
    numbers: tuple[Number, ...]
    basis: str
    margin: float
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Claim:
    """A sentence that can be true or not, who says it, and the question that it belongs to."""

    question: str
    text: str
    where: str


@dataclass(frozen=True)
class Unanswered:
    """A question that these runs cannot answer, and which runs it takes."""

    question: str
    needs: str


def options(comparisons: int = 1, sides: int = 2) -> Options:
    """t intervals for so many comparisons together (Bonferroni). sides=1: the interval of which
    two one-sided tests are the ends (Schuirmann 1987), at 1 - 2 alpha."""
    return Options(level=1 - (2 / sides) * (1 - LEVEL) / comparisons, method=Method.t)


def change(after: BySeed, before: BySeed, comparisons: int = 1, sides: int = 2) -> Estimate:
    """after - before, in pairs of seeds where both have the same ones."""
    return difference(matched(after, before), options(comparisons, sides))


def minus(first: Mapping[int, float], second: Mapping[int, float]) -> dict[int, float]:
    """The difference of each common seed."""
    return {seed: value - second[seed] for seed, value in first.items() if seed in second}


def is_below(estimate: Estimate, margin: float) -> Verdict:
    """Whether it is below 0. A difference that is shown to be within the margin is none."""
    if estimate.high < 0:
        return Verdict.holds
    if estimate.low > 0 or within(estimate, margin):
        return Verdict.does_not_hold
    return Verdict.cannot_tell


def is_above(estimate: Estimate, margin: float) -> Verdict:
    """Whether it is above 0; see `is_below`."""
    return is_below(mirrored(estimate), margin)


def is_nothing(estimate: Estimate, margin: float) -> Verdict:
    """Whether it is within the margin on both sides; take an interval of one-sided tests."""
    if within(estimate, margin):
        return Verdict.holds
    beyond = estimate.low > margin or estimate.high < -margin
    return Verdict.does_not_hold if beyond else Verdict.cannot_tell


def is_not_worse(estimate: Estimate, margin: float) -> Verdict:
    """Whether it is above -margin; take an interval of one-sided tests."""
    if estimate.low > -margin:
        return Verdict.holds
    return Verdict.does_not_hold if estimate.high < -margin else Verdict.cannot_tell


def within(estimate: Estimate, margin: float) -> bool:
    return -margin < estimate.low and estimate.high < margin


def mirrored(estimate: Estimate) -> Estimate:
    """The same with the other sign."""
    ends = -estimate.point, -estimate.high, -estimate.low
    return Estimate(estimate.name, *ends, estimate.basis)


def every(verdicts: Iterable[Verdict]) -> Verdict:
    """A claim of several parts: it fails with any of them, and holds with all."""
    found = set(verdicts)
    for verdict in (Verdict.does_not_hold, Verdict.cannot_tell):
        if verdict in found:
            return verdict
    return Verdict.holds


def answer(
    claim: Claim,
    asked: Asked,
    cells: Sequence[Cell],
    verdict: Verdict,
    numbers: Sequence[Number],
    reason: str,
) -> Answer:
    """An answer with the runs that it stands on and their warnings."""
    warned = dict.fromkeys(text for number in numbers for text in number.estimate.warnings)
    return Answer(
        claim.question,
        claim.text,
        claim.where,
        scale_of(cells),
        verdict,
        reason,
        tuple(numbers),
        basis_of(cells),
        asked.margin,
        tuple(warned),
    )


def scale_of(cells: Sequence[Cell]) -> str:
    """The models, task and algorithms of these conditions, and the published code's schedule where
    they have it: at what a claim was tested."""
    told = []
    for part in ("model", "task", "algo"):
        names = dict.fromkeys(str(cell.parts[part]) for cell in cells if cell.parts.get(part))
        told.append(" and ".join(names))
    if all(cell.config("optim.schedule_per") == "round" for cell in cells):
        told.append("learning rate per round")
    return ", ".join(filter(None, told))


def basis_of(cells: Sequence[Cell]) -> str:
    """How many runs and which seeds."""
    seeds = sorted({seed for cell in cells for seed in cell.seeds})
    runs = sum(len(cell.seeds) for cell in cells)
    named = ", ".join(map(str, seeds))
    return f"{count(runs, 'run')}, {count(len(seeds), 'seed')} ({named})"

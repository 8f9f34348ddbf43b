"""Answers to questions: a claim, the numbers on which it is decided, and its verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from rlhf_lab.runs.trackers.console import counted
from rlhf_lab_analysis.comparison.cell import Cell, Key
from rlhf_lab_analysis.ranges import ranges_text
from rlhf_lab_analysis.statistics.decisions import Verdict
from rlhf_lab_analysis.statistics.results import Estimate


class Unit(StrEnum):
    """The unit that a number is shown in: `points` are hundredths of a share."""

    points = "points"
    times = "times"
    nats = "nats"
    updates = "updates"
    exponent = "as exponent"

    def text(self, value: float) -> str:
        """A value, of which shares are stored as shares and shown in points."""
        digits = 2 if self in (Unit.times, Unit.exponent) else 1
        sign = "" if self is Unit.times else "+"
        return f"{100 * value if self is Unit.points else value:{sign}.{digits}f}"


@dataclass(frozen=True)
class Number:
    """An estimate with a label."""

    label: str
    estimate: Estimate
    unit: Unit = Unit.points

    @property
    def text(self) -> str:
        """Such as `-3.1 [-5.0, -1.2] points (95%)`, with the level of the interval."""
        point, low, high = (
            self.unit.text(value)
            for value in (self.estimate.point, self.estimate.low, self.estimate.high)
        )
        return f"{point} [{low}, {high}] {self.unit} ({self.estimate.basis.options.percent})"


@dataclass(frozen=True)
class Criteria:
    """By what conditions are compared, and the largest difference that does not matter.

    quality: a share from 0 to 1 of an evaluated version; margin: of it. drift: nats.
    """

    quality: str = "gold/win_rate"
    margin: float = 0.02
    drift: str = "kl/sft_k1"


@dataclass(frozen=True)
class Answer:
    """A claim and its verdict. source: of the claim. setting: the models, task and algorithms that
    it was tested with. evidence: the numbers in words. runs: how many, and their seeds. conditions:
    the keys of those that were compared."""

    question: str
    claim: str
    source: str
    setting: str
    verdict: Verdict
    evidence: str
    numbers: tuple[Number, ...]
    runs: str
    margin: float
    warnings: tuple[str, ...] = ()
    conditions: tuple[Key, ...] = ()


@dataclass(frozen=True)
class Unanswered:
    """A question that these runs cannot answer, and which runs it takes. reason: what these runs
    lack."""

    question: str
    needs: str
    reason: str


def setting_of(cells: Sequence[Cell]) -> str:
    """The models, task and algorithms of these conditions; the proxy where it is of another size
    than the policy, and the published code's schedule where they have it."""
    model, task, proxy, algo = (values_of(cells, one) for one in ("model", "task", "proxy", "algo"))
    per_round = all(cell.config("optim.schedule_per") == "round" for cell in cells)
    names = [
        model,
        task,
        f"proxy {proxy}" if proxy and proxy != model else "",
        "learning rate per round" if per_round else "",
        algo,
    ]
    return ", ".join(filter(None, names))


def values_of(cells: Sequence[Cell], part: str) -> str:
    return " and ".join(dict.fromkeys(str(c.parts[part]) for c in cells if c.parts.get(part)))


def runs_of(seeds: Mapping[Cell, Sequence[int]]) -> str:
    """How many runs and which seeds, and how many RL seeds if stage seeds have several."""
    all_seeds = {seed for own in seeds.values() for seed in own}
    runs = sum(cell.runs_of(own) for cell, own in seeds.items())
    unit = next(iter(seeds)).unit
    several = {seed for cell, own in seeds.items() for stage, seed in cell.members if stage in own}
    more = f", {len(several)} RL seeds" if len(several) > 1 else ""
    return (
        f"{counted(runs, 'run')}, {counted(len(all_seeds), unit)} ({ranges_text(all_seeds)}){more}"
    )

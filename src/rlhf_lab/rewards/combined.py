"""Several rewards as one: a weighted sum or a product, behind gates that must be open.

Gates and calibrated terms together are the mixture of judges of CGPO (arXiv:2409.20370, section 4):
the reward counts where all constraints hold, and is compared with that of a reference answer.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar

from rlhf_lab.rewards.options import RewardContext, RewardOptions
from rlhf_lab.types import limits
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.reward import Reward
from rlhf_lab.types.samples import MIXED_TASK, Group, Sample, Steps

Reference = Callable[[Group], Sample]


class How(StrEnum):
    """How the terms that are no gates are combined."""

    sum = "sum"
    product = "product"


@dataclass(frozen=True)
class CombinedReward(RewardOptions):
    """Several rewards as one; add a term with +reward@reward.terms.NAME=OPTION."""

    name: str = limits.name("combined")
    how: How = limits.option(
        How.sum, about="Whether the scores of terms are added, with weights, or multiplied."
    )
    terms: dict[str, Any] = limits.collection(
        dict, about="The rewards that are combined, by a name of your choice."
    )
    weights: dict[str, float] = limits.collection(
        dict,
        about="Weights of terms in the sum, by their names; 1 where none is given.",
        **limits.SCORES,
    )
    gates: dict[str, float] = limits.collection(
        dict,
        about="Least score of terms, by their names: a sample below one of them scores `closed`.",
        **limits.SCORES,
    )
    closed: float = limits.score(0.0, about="Score of a sample that does not pass a gate.")
    calibrated: list[str] = limits.collection(
        list,
        about=(
            "Names of terms that become sigmoid(score - score of the reference answer), between 0 "
            "and 1."
        ),
        source="CGPO, arXiv:2409.20370",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.scored:
            raise UserError(
                "reward.terms has no term to score by: add one with "
                "+reward@reward.terms.NAME=OPTION (a gate alone gives no reward)"
            )
        require_names("gates", self.gates, self.terms)
        require_names("weights", self.weights, self.scored)
        require_names("calibrated", self.calibrated, self.scored)
        if self.how is How.product and self.weights:
            raise UserError("reward.weights with reward.how=product: factors have no weights")

    def build(self, context: RewardContext) -> CombinedScorer:
        return CombinedScorer(self, context.terms_of(self), context.reference_for(self))

    @property
    def reads_reference(self) -> str:
        return f"calibrated={self.calibrated}" if self.calibrated else ""

    @property
    def scored(self) -> list[str]:
        """The terms that are no gates, in order."""
        return [name for name in self.terms if name not in self.gates]


def require_names(key: str, names: Iterable[str], known: Collection[str]) -> None:
    """Refuse names of terms that are not there, or are gates where gates make no sense."""
    for name in names:
        if name not in known:
            raise UserError(
                f"reward.{key} names {name!r}: choose one of {', '.join(known)} (gates have "
                "neither weight nor calibration)"
            )


# A term's scores of a group; None for a sample that it leaves to the other terms.
Row = tuple[float | None, ...]


class CombinedScorer(Reward):
    """Scores by live terms. A group that one of them cannot score has no score, and neither has one
    with a sample that all of them leave to others."""

    def __init__(
        self, options: CombinedReward, terms: Mapping[str, Reward], reference: Reference
    ) -> None:
        self._options = options
        self._terms = terms
        self._reference = reference

    def score(self, groups: Sequence[Group]) -> list[tuple[float, ...]]:
        return [group.rewards for group in self.scored(groups)]

    def scored(self, groups: Sequence[Group]) -> list[Group]:
        """The same with what the steps earned in a sum, where no gate is closed."""
        terms = {name: self._scored(name, groups) for name in self._terms}
        out = []
        for index, group in enumerate(groups):
            rows = {name: term[index][0] for name, term in terms.items()}
            steps = {name: term[index][1] for name, term in terms.items()}
            rewards = self._combined(rows)
            out.append(group.scored(rewards, self._steps(rows, steps) if rewards else ()))
        return out

    def _steps(self, rows: Mapping[str, Row], steps: Mapping[str, Sequence[Steps]]) -> list[Steps]:
        """What the steps of each sample earned, weighted as their terms are."""
        options = self._options
        names = [name for name in options.scored if steps[name]]
        if not names or options.how is How.product:
            return []
        out: list[Steps] = []
        for number in range(len(rows[names[0]])):
            scores = {name: row[number] for name, row in rows.items()}
            of_terms = [
                (position, options.weights.get(name, 1.0) * reward)
                for name in names
                for position, reward in steps[name][number]
            ]
            out.append(tuple(of_terms) if self._is_open(scores) else ())
        return out

    def _is_open(self, scores: Mapping[str, float | None]) -> bool:
        """Whether a sample passes all gates; one that a gate leaves to others passes it."""
        gates = self._options.gates.items()
        return all((score := scores[name]) is None or score >= least for name, least in gates)

    def drain(self) -> Mapping[str, int]:
        return counts_of(self._terms.values())

    def _scored(self, name: str, groups: Sequence[Group]) -> list[tuple[Row, Sequence[Steps]]]:
        """The scores of a term, and what it gave for steps."""
        term = self._terms[name]
        scored = term.as_term(groups)
        if name not in self._options.calibrated:
            return scored
        answers = [Group(group.prompt, (self._reference(group),)) for group in groups]
        references = term.score(answers)
        return [
            (calibrated(row, reference), ())
            for (row, _), reference in zip(scored, references, strict=True)
        ]

    def _combined(self, rows: Mapping[str, Row]) -> tuple[float, ...]:
        if not all(rows.values()):
            return ()
        names = list(rows)
        scores = [
            self._of_sample(dict(zip(names, scores, strict=True)))
            for scores in zip(*rows.values(), strict=True)
        ]
        return () if None in scores else tuple(score for score in scores if score is not None)

    def _of_sample(self, scores: Mapping[str, float | None]) -> float | None:
        options = self._options
        if not self._is_open(scores):
            return options.closed
        found = {name: scores[name] for name in options.scored}
        terms = {name: score for name, score in found.items() if score is not None}
        if not terms:
            return None
        if options.how is How.product:
            return math.prod(terms.values())
        return sum(options.weights.get(name, 1.0) * score for name, score in terms.items())


def calibrated(row: Row, reference: tuple[float, ...]) -> Row:
    """sigmoid(score - score of the reference), without a score where the reference has none."""
    if not reference:
        return ()
    return tuple(None if score is None else sigmoid(score - reference[0]) for score in row)


def counts_of(terms: Iterable[Reward]) -> Mapping[str, int]:
    """The counts of all terms since the last call."""
    counts: Counter[str] = Counter()
    for term in terms:
        counts.update(term.drain())
    return counts


def sigmoid(x: float) -> float:
    """1 / (1 + e^-x), where neither end overflows."""
    return 0.5 * (1.0 + math.tanh(0.5 * x))


@dataclass(frozen=True)
class PerTaskReward(RewardOptions):
    """The reward of the sample's task; add one with +reward@reward.terms.TASK=OPTION."""

    name: str = limits.name("per_task")
    terms: dict[str, Any] = limits.collection(
        dict, about="The reward of each task of task=mixture, by the task's name there."
    )
    reads_example: ClassVar[bool] = True
    by_task: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.terms:
            raise UserError(
                "reward.terms has no reward: add one for each task of the mixture with "
                "+reward@reward.terms.TASK=OPTION"
            )

    def build(self, context: RewardContext) -> PerTaskScorer:
        return PerTaskScorer(context.terms_of(self))


class PerTaskScorer(Reward):
    """Scores each group by the live reward of its task."""

    def __init__(self, terms: Mapping[str, Reward]) -> None:
        self._terms = terms

    def score(self, groups: Sequence[Group]) -> list[tuple[float, ...]]:
        return [group.rewards for group in self.scored(groups)]

    def scored(self, groups: Sequence[Group]) -> list[Group]:
        out = list(groups)
        for name, term in self._terms.items():
            places = [
                place
                for place, group in enumerate(groups)
                if group.prompt.example.hidden[MIXED_TASK] == name
            ]
            if places:
                found = term.scored([groups[place] for place in places])
                for place, group in zip(places, found, strict=True):
                    out[place] = group
        return out

    def drain(self) -> Mapping[str, int]:
        return counts_of(self._terms.values())

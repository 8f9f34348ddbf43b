"""Make the page's questions: a card for each claim, with the numbers that decide it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from rlhf_lab.runs.trackers.console import counted
from rlhf_lab_analysis.comparison.cell import Key
from rlhf_lab_analysis.comparison.registry.answers import Answer, Number, Unit
from rlhf_lab_analysis.comparison.registry.questions import Answers
from rlhf_lab_analysis.ranges import unique
from rlhf_lab_analysis.report.bars import Bar, Scale, bar, scale_of
from rlhf_lab_analysis.statistics.decisions import NO_WIDTH, Verdict, has_width

CLASSES = {
    Verdict.holds: "holds",
    Verdict.negligible: "holds",
    Verdict.does_not_hold: "fails",
    Verdict.cannot_tell: "unsure",
}
# Shown beside the colour, so that nothing depends on that alone.
SIGNS = {
    Verdict.holds: "✓",
    Verdict.negligible: "≈",
    Verdict.does_not_hold: "✗",
    Verdict.cannot_tell: "?",
}
# What would be no difference.
ORIGINS = {unit: float(unit is Unit.times) for unit in Unit}


@dataclass(frozen=True, eq=False)
class Card:
    """One claim with the verdict in each setting; numbers of one unit share a scale."""

    answers: Sequence[Answer]

    @property
    def claim(self) -> str:
        return self.answers[0].claim

    @property
    def source(self) -> str:
        return self.answers[0].source

    @property
    def css(self) -> str:
        verdicts = {answer.verdict for answer in self.answers}
        return CLASSES[verdicts.pop()] if len(verdicts) == 1 else "mixed"

    @property
    def warnings(self) -> tuple[str, ...]:
        return unique(text for answer in self.answers for text in answer.warnings)

    @property
    def warning_title(self) -> str:
        return counted(len(self.warnings), "warning")

    @cached_property
    def scales(self) -> Mapping[Unit, Scale]:
        """The margin is of win-rates, which are in points."""
        estimates: dict[Unit, list[Any]] = {}
        for answer in self.answers:
            for number in answer.numbers:
                estimates.setdefault(number.unit, []).append(number.estimate)
        margin = self.answers[0].margin
        return {
            unit: scale_of(found, ORIGINS[unit], margin if unit is Unit.points else None)
            for unit, found in estimates.items()
        }

    def value(self, number: Number) -> str:
        """A number with its interval, or why that has no width."""
        return number.text if has_width(number.estimate) else f"{number.text}: {NO_WIDTH}"

    def bar(self, number: Number) -> Bar:
        return bar(number.estimate, self.scales[number.unit], f"{number.label}, {number.text}")


@dataclass(frozen=True)
class QuestionCards:
    """A question with the cards of its claims. tally: how often each verdict is given. conditions:
    those that are compared."""

    question: str
    cards: Sequence[Card]
    tally: Sequence[tuple[Verdict, int]]
    conditions: tuple[Key, ...]


def verdicts(answers: Answers) -> dict[str, Any]:
    """Every question with its claims."""
    counts = Counter(answer.verdict for answer in answers.every)
    return {
        "classes": CLASSES,
        "signs": SIGNS,
        "counts": {verdict: counts[verdict] for verdict in Verdict} if counts else {},
        "questions": [question_cards(question, given) for question, given in answers.given],
    }


def question_cards(question: str, given: Sequence[Answer]) -> QuestionCards:
    conditions = dict.fromkeys(key for answer in given for key in answer.conditions)
    counts = Counter(answer.verdict for answer in given)
    tally = [(verdict, counts[verdict]) for verdict in Verdict if counts[verdict]]
    return QuestionCards(question, cards(given), tally, tuple(conditions))


def cards(given: Sequence[Answer]) -> list[Card]:
    """A card for each claim, with all settings that it was tested in."""
    claims: dict[tuple[str, str], list[Answer]] = {}
    for answer in given:
        claims.setdefault((answer.claim, answer.source), []).append(answer)
    return [Card(same) for same in claims.values()]

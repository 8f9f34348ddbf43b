"""A language model as a judge: scores against the reference answer, and comparisons
(arXiv:2306.05685)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from rlhf_lab.rewards.judge.calls import JudgeCalls
from rlhf_lab.rewards.judge.options import EndpointReward, Style, filled
from rlhf_lab.types.data import Verdict
from rlhf_lab.types.reward import Reward
from rlhf_lab.types.samples import Group, Sample

Reference = Callable[[Group], Sample]


class JudgeScorer(Reward):
    """Pairwise: the win against the reference answer. Rating: the number.

    A group of which a question stays without an answer has no score.
    """

    compares: ClassVar[bool] = True

    def __init__(self, options: EndpointReward, calls: JudgeCalls, reference: Reference) -> None:
        self._options = options
        self._calls = calls
        self._reference = reference
        self._counts: Counter[str] = Counter()

    def score(self, groups: Sequence[Group]) -> list[tuple[float, ...]]:
        """One float per sample, in order; none for a group that could not be judged."""
        references = [Group(group.prompt, (self._reference(group),)) for group in groups]
        if self._options.style is Style.rating:
            return self._ratings(groups, references)
        verdicts = self.compare(groups, references)
        return [tuple(verdict.win for verdict in row) for row in verdicts]

    def compare(
        self, groups: Sequence[Group], references: Sequence[Group]
    ) -> list[tuple[Verdict, ...]]:
        """One verdict per sample against the only sample of its group's reference."""
        if self._options.style is Style.rating:
            mine = self._ratings(groups, references)
            theirs = self._ratings(references, references)
            rows = [
                tuple(Verdict(won(score, reference[0])) for score in row) if reference else ()
                for row, reference in zip(mine, theirs, strict=True)
            ]
        else:
            rows = self._compared(groups, references)
        for verdict in (verdict for row in rows for verdict in row):
            self._counts["judge_disagreements"] += int(verdict.agrees is False)
            self._counts["judge_ties"] += int(verdict.win == 0.5 and verdict.agrees is not False)
        return rows

    def drain(self) -> Mapping[str, int]:
        counts = {"judge_disagreements": 0, "judge_ties": 0, **self._counts, **self._calls.drain()}
        self._counts.clear()
        return counts

    def _compared(
        self, groups: Sequence[Group], references: Sequence[Group]
    ) -> list[tuple[Verdict, ...]]:
        questions = [
            [self._orders(group, sample, reference.samples[0]) for sample in group.samples]
            for group, reference in zip(groups, references, strict=True)
        ]
        answers = self._calls.answers(
            [question for row in questions for orders in row for question in orders]
        )
        return [
            tuple(verdict_of([answers[question] for question in orders]) for orders in row)
            if all(question in answers for orders in row for question in orders)
            else ()
            for row in questions
        ]

    def _orders(self, group: Group, sample: Sample, reference: Sample) -> list[str]:
        """The questions of a pair: the sample first, and then, with both_orders, second."""
        mine, theirs = sample.text.strip(), reference.text.strip()
        orders = [(mine, theirs), (theirs, mine)][: 1 + self._options.both_orders]
        return [
            self._question(group, {"first": first, "second": second}) for first, second in orders
        ]

    def _ratings(
        self, groups: Sequence[Group], references: Sequence[Group]
    ) -> list[tuple[float, ...]]:
        questions = [
            [
                self._question(
                    group,
                    {"answer": sample.text.strip(), "reference": reference.samples[0].text.strip()},
                )
                for sample in group.samples
            ]
            for group, reference in zip(groups, references, strict=True)
        ]
        answers = self._calls.answers([question for row in questions for question in row])
        return [
            tuple(answers[question] for question in row)
            if all(question in answers for question in row)
            else ()
            for row in questions
        ]

    def _question(self, group: Group, texts: Mapping[str, str]) -> str:
        prompt = group.prompt.example.prompt.strip()
        return filled(self._options.question, {"prompt": prompt, **texts})


def verdict_of(wins: Sequence[float]) -> Verdict:
    """The verdict of one order or both; wins: of whichever answer came first."""
    first, *swapped = wins
    if not swapped:
        return Verdict(first)
    return Verdict((first + 1 - swapped[0]) / 2, agrees=first == 1 - swapped[0])


def won(mine: float, theirs: float) -> float:
    """1, 0.5 for a tie, or 0."""
    return 0.5 if mine == theirs else float(mine > theirs)

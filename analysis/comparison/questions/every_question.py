"""All questions of the paper and of `sweeps/`, with the runs that each of them needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rlhf_lab_analysis.comparison.questions import (
    asynchrony,
    off_policyness,
    on_the_way,
    rate_schedule,
    reuse,
    robustness,
    scale,
    staleness,
)
from rlhf_lab_analysis.comparison.questions.answers import Answer, Criteria, Unanswered
from rlhf_lab_analysis.comparison.questions.reasons import Varied, data_reason, structure_reason
from rlhf_lab_analysis.comparison.selection import Cell, Selection, cells
from rlhf_lab_analysis.tables.table import Tables

Ask = Callable[[Selection, Criteria], list[Answer]]
Compares = Callable[[Selection], Sequence[tuple[Cell, ...]]]


@dataclass(frozen=True)
class Question:
    """A question and the function that answers it from runs. compares: the conditions that it would
    compare, whatever their seeds. varied: the parts in which these differ, with the values that it
    needs. needs: the runs to make for it."""

    text: str
    asks: Ask
    compares: Compares
    varied: Varied
    needs: str

    def open(self, selection: Selection, criteria: Criteria) -> Unanswered:
        """Why these conditions give no answer, and the comparisons that lack seeds alone."""
        compared = tuple(self.compares(selection))
        reason = (
            data_reason(compared, criteria)
            if compared
            else structure_reason(selection, self.varied)
        )
        return Unanswered(self.text, self.needs, reason, compared)


QUESTIONS = (
    Question(
        "How robust is each algorithm to off-policy data?",
        off_policyness.ask,
        off_policyness.compared,
        {"updates_per_round": 2},
        "runs that differ in run.updates_per_round alone: make sweep SWEEP=off_policy_ladder_nano",
    ),
    Question(
        "What does it cost early in training?",
        on_the_way.ask,
        on_the_way.compared,
        {"updates_per_round": 3},
        "runs of three or more N, evaluated at a quarter of their updates: make sweep "
        "SWEEP=off_policy_ladder_nano",
    ),
    Question(
        "Which algorithm is the most robust?",
        robustness.ask,
        robustness.compared,
        {"updates_per_round": 2, "algo": ("online_dpo",)},
        "such runs of online_dpo and of other algorithms: make sweep SWEEP=off_policy_ladder_nano",
    ),
    Question(
        "How much of the loss is the learning rate's schedule?",
        rate_schedule.ask,
        rate_schedule.compared,
        {"schedule_per": ("round", "update")},
        "runs with optim.schedule_per=update and =round: make sweep SWEEP=rate_schedule_nano",
    ),
    Question(
        "Are larger models more robust to it?",
        scale.ask,
        scale.compared,
        {"model": 2, "proxy": 2, "reward": 2},
        "ladders of two models or reward models: make sweep SWEEP=policy_scale_nano, "
        "SWEEP=reward_scale_nano",
    ),
    Question(
        "What does async cost, and what does it buy?",
        asynchrony.ask,
        asynchrony.compared,
        {"mode": ("sync", "async")},
        "runs with mode=sync and mode=async: make sweep SWEEP=sync_async_nano",
    ),
    Question(
        "What do more passes or more samples buy?",
        reuse.ask,
        reuse.compared,
        {"passes": 2, "group_size": 2},
        "runs of several T or K: make sweep SWEEP=passes_nano, SWEEP=samples_per_prompt_nano",
    ),
    Question(
        "How stale may samples be?",
        staleness.ask,
        staleness.compared,
        {"max_staleness": 2},
        "runs of several mode.max_staleness: make sweep SWEEP=staleness_nano",
    ),
)


@dataclass(frozen=True)
class Answers:
    """The answers by question, the questions without an answer, and what was not compared."""

    given: tuple[tuple[str, tuple[Answer, ...]], ...]
    unanswered: tuple[Unanswered, ...]
    left_out: tuple[str, ...]

    @property
    def every(self) -> list[Answer]:
        """The answers of all questions."""
        return [one for _, found in self.given for one in found]


def answers(tables: Tables, criteria: Criteria | None = None) -> Answers:
    """All answers that these tables allow. criteria: by default, win-rates within 2 points count
    as equal."""
    return answers_of(cells(tables), criteria or Criteria())


def answers_of(
    selection: Selection, criteria: Criteria, questions: Sequence[Question] = QUESTIONS
) -> Answers:
    """All answers that this selection allows. Conditions of one seed, or without the metrics of the
    criteria, are not compared."""
    usable, reasons = with_seeds(selection, criteria)
    found = [(question, tuple(question.asks(usable, criteria))) for question in questions]
    given = tuple((question.text, some) for question, some in found if some)
    lacking = tuple(question.open(selection, criteria) for question, some in found if not some)
    left_out = (*selection.left_out, *reasons, *staleness.idle(usable, criteria))
    return Answers(given, lacking, left_out)


def with_seeds(selection: Selection, criteria: Criteria) -> tuple[Selection, list[str]]:
    """The conditions that can be compared, and a line for each that cannot."""
    kept, reasons = [], []
    for cell in selection.cells:
        lacks = [name for name in (criteria.quality, criteria.drift) if not cell.has(name)]
        if len(cell.seeds) < 2:
            reasons.append(f"not compared: {cell.condition} has seed {cell.seeds[0]} alone")
        elif lacks:
            reasons.append(f"not compared: {cell.condition} has no {' and no '.join(lacks)}")
        else:
            kept.append(cell)
    return Selection(tuple(kept), selection.left_out), reasons

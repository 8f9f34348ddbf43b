"""Why a question has no answer: which values, settings, seeds or evaluations the runs lack."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from rlhf_lab_analysis.comparison.registry.answers import Criteria, Unanswered
from rlhf_lab_analysis.comparison.registry.questions import Answers, answers_of, registries
from rlhf_lab_analysis.comparison.selection import cells
from rlhf_lab_analysis.sources.record import Record
from tests.support import table_records as made
from tests.support.question_records import Made

pytestmark = pytest.mark.usefixtures("costly")
ENDS = (0.7, 0.8)


def answers(records: Sequence[Record]) -> Answers:
    """Of the questions of any runs alone."""
    return answers_of(cells(made.tables(*records)), Criteria(), [registries()[-1]])


def unanswered(records: Sequence[Record], about: str) -> Unanswered:
    return next(one for one in answers(records).unanswered if about in one.question)


def test_one_seed_of_sync_and_async_needs_another_seed() -> None:
    records = [*Made().runs((0.8,)), *Made(mode="async").runs((0.8,))]
    found = unanswered(records, "async cost")
    assert found.reason.startswith("It needs two seeds of each condition: these have seed 1 alone")


def test_seeds_that_are_not_shared_are_named() -> None:
    records = [*Made().runs({1: 0.7, 2: 0.8}), *Made(mode="async").runs({3: 0.7})]
    assert "seed 3 alone" in unanswered(records, "async cost").reason


def test_runs_of_one_mode_need_the_other() -> None:
    found = unanswered(Made().runs(ENDS), "async cost")
    assert found.reason == "It needs runs that differ in mode: it is sync in all of these."


def test_runs_that_differ_in_more_than_the_mode_say_in_what() -> None:
    records = [*Made().runs(ENDS), *Made(mode="async", passes=2).runs(ENDS)]
    assert unanswered(records, "async cost").reason.endswith("these differ in mode, run.passes.")


def test_two_updates_a_round_are_too_few_for_what_is_lost_on_the_way() -> None:
    records = [*Made().runs(ENDS), *Made(per_round=16).runs(ENDS)]
    reason = unanswered(records, "early in training").reason
    assert reason.startswith("It needs enough values of run.updates_per_round")


def test_an_answer_names_the_conditions_that_it_compares() -> None:
    found = answers([*Made().runs(ENDS), *Made(mode="async").runs(ENDS)])
    conditions = {key for one in found.every for key in one.conditions}
    assert len(conditions) == 2 and all(len(key) == 3 for key in conditions)


def test_runs_that_do_not_count_are_the_reason() -> None:
    found = unanswered([made.record("cut", 1, state="failed")], "async cost")
    assert found.reason == "No run counts: the warnings have the reasons."

"""Stage seeds crossed with seeds: what a comparison reads of them, and the page's rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rlhf_lab_analysis.benchmark.crossed import HEAD, crossed_rows
from rlhf_lab_analysis.benchmark.page import distinct_text
from rlhf_lab_analysis.comparison.registry.answers import Criteria
from rlhf_lab_analysis.comparison.registry.decisions import decide_all
from rlhf_lab_analysis.comparison.registry.definitions import read_registry
from rlhf_lab_analysis.comparison.selection import Selection, cells
from rlhf_lab_analysis.sources.record import Record
from tests.analysis.comparison.test_registry import written
from tests.support import table_records as made
from tests.support.question_records import Made

# Of N = 16 less N = 1, by stage seed and seed: rows differ by 8 points, columns by 2.
LOSSES = {3: {1: 0.02, 2: 0.04}, 4: {1: 0.10, 2: 0.12}}


def runs(per_round: int, losses: dict[int, dict[int, float]]) -> list[Record]:
    """A run for each stage seed and seed that ends so much below 0.7."""
    return [
        replace(
            one,
            run=f"{one.run}, stages {stage}",
            place=f"{one.place}-{stage}",
            config={**one.config, "stage_seed": stage},
            facts=replace(one.facts, content=f"{one.facts.content}{stage}"),
        )
        for stage, by_seed in losses.items()
        for one in Made(per_round=per_round).runs({s: 0.7 - loss for s, loss in by_seed.items()})
    ]


def of(*records: Record) -> Selection:
    return cells(made.tables(*records))


NONE = {stage: dict.fromkeys(own, 0.0) for stage, own in LOSSES.items()}


def test_a_difference_reads_the_seeds_that_both_conditions_have(tmp_path: Path) -> None:
    """N = 4 has the first seed alone: the second ones of N = 1, which end higher, do not count."""
    registry = read_registry(written(tmp_path, claim={"change": {"run.updates_per_round": [1, 4]}}))
    first = {stage: {1: own[1]} for stage, own in LOSSES.items()}
    higher = {stage: {1: 0.0, 2: -0.2} for stage in LOSSES}
    (found,) = decide_all(registry, of(*runs(1, higher), *runs(4, first)), Criteria()).decided
    assert found.answer.numbers[0].estimate.point == pytest.approx(-(0.02 + 0.10) / 2)
    assert found.answer.runs == "4 runs, 2 stage seeds (3, 4)"


def test_a_stage_seed_counts_once_however_many_seeds_it_has(tmp_path: Path) -> None:
    registry = read_registry(written(tmp_path, claim={}))
    selection = of(*runs(1, NONE), *runs(16, LOSSES))
    (found,) = decide_all(registry, selection, Criteria()).decided
    estimate = found.answer.numbers[0].estimate
    assert estimate.point == pytest.approx(-(0.03 + 0.11) / 2)
    assert found.answer.runs == "8 runs, 2 stage seeds (3, 4), 2 RL seeds"
    # Of Student's t with 1 degree of freedom at 97.5%: two means, 0.03 and 0.11.
    assert estimate.high - estimate.point == pytest.approx(12.706204736 * 0.04)


def test_the_page_has_a_row_for_runs_that_are_crossed(tmp_path: Path) -> None:
    registry = read_registry(written(tmp_path, claim={}))
    selection = of(*runs(1, NONE), *runs(16, LOSSES))
    (row,) = crossed_rows([decide_all(registry, selection, Criteria())], selection, Criteria())
    shown = dict(zip(HEAD, row, strict=True))
    assert shown["difference"] == "N=16 less N=1" and shown["setting"] == "nano_s, tldr_nano, ppo"
    assert shown["stage seeds, RL seeds"] == "2, 2"
    # Rows of -3 and -11 points, columns of -6 and -8, and nothing left.
    assert shown["between stage seeds"] == "5.66 points"
    assert shown["between RL seeds"].startswith("1.41 points") and shown["rest"] == "0.00 points"
    assert shown["mean of each RL seed"] == "-6.0, -8.0"
    # 12.7 standard errors: means of stage seeds are 3 and 11.
    assert shown["over stage seeds"] == "-7.0 [-57.8, +43.8] (95%)"


def test_runs_of_one_seed_a_stage_seed_have_no_row(tmp_path: Path) -> None:
    registry = read_registry(written(tmp_path, claim={}))
    first = {stage: {1: own[1]} for stage, own in LOSSES.items()}
    selection = of(*runs(1, NONE), *runs(16, first))
    found = [decide_all(registry, selection, Criteria())]
    assert found[0].decided and not crossed_rows(found, selection, Criteria())


def test_runs_of_other_rl_seeds_are_no_repetitions_of_another_sweeps() -> None:
    """56 runs of own_rl_seeds were counted as those of the ladder, whose stage seeds they have."""
    ladder = of(*runs(1, {3: {1: 0.0}, 4: {1: 0.0}})).cells
    other = of(*runs(1, {3: {103: 0.0}, 4: {1: 0.0}})).cells
    both = Selection((*ladder, *(replace(one, sweep="own_rl_seeds") for one in other)), ())
    assert distinct_text(both).startswith("1 have the settings and the seeds of another one")

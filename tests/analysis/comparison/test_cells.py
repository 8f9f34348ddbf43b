"""What a condition knows of its runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rlhf_lab_analysis.comparison.cell import with_common_seeds
from rlhf_lab_analysis.comparison.selection import cells
from rlhf_lab_analysis.sources.record import Record
from tests.support.table_records import config, evals, record, tables

LATER = "optim.max_gradient_cosine"


def run(seed: int, **optim: Any) -> Record:
    own = config(seed)
    return replace(record(f"r{seed}", seed), config=own | {"optim": own["optim"] | optim})


def test_runs_that_lack_an_option_have_the_default_that_others_recorded() -> None:
    new = run(2, max_gradient_cosine=1.0)
    new = replace(new, facts=replace(new.facts, changed=frozenset({"optim.lr"})))
    (cell,) = cells(tables(run(1), new)).cells
    assert cell.seeds == (1, 2) and cell.config(LATER) == 1.0
    (cell,) = cells(tables(run(1), run(2))).cells
    assert cell.config(LATER) is None


def test_an_option_that_was_changed_makes_two_conditions() -> None:
    new = run(2, max_gradient_cosine=0.5)
    changed = frozenset({LATER})
    new = replace(new, facts=replace(new.facts, changed=changed))
    assert len(cells(tables(run(1), new)).cells) == 2


def test_a_setting_that_differs_makes_two_conditions() -> None:
    found = cells(tables(run(1), run(2, max_gradient_cosine=0.5))).cells
    assert {cell.config(LATER) for cell in found} == {None, 0.5}


def staged(stage_seed: int, seed: int, per_round: int = 1, win_rate: float = 0.5) -> Record:
    """A run whose last version has a win-rate."""
    own = config(seed, per_round=per_round) | {"stage_seed": stage_seed}
    judged = evals(metrics={"gold/win_rate": win_rate})
    name = f"n{per_round}-{stage_seed}-{seed}"
    return replace(record(name, seed, evals=judged), config=own, run=name, place=f"runs/{name}")


def test_numbers_are_means_over_the_seeds_of_a_stage_seed() -> None:
    (cell,) = cells(tables(staged(3, 1), staged(3, 2, win_rate=0.75), staged(4, 1))).cells
    assert cell.seeds == (3, 4) and cell.unit == "stage seed" and cell.num_runs == 3
    assert cell.scores("gold/win_rate") == {3: 0.625, 4: 0.5}
    assert cell.runs_of([3]) == 2 and cell.runs[3]["seed"] == 1


def test_conditions_are_compared_by_the_seeds_that_all_have() -> None:
    """N = 1 has two seeds of stage seed 3, of which N = 4 has the first: the other is no part of
    the difference. Of stage seed 4 they have none in common, and 5 is of one of them alone."""
    fresh = [staged(3, 1), staged(3, 2, win_rate=0.75), staged(4, 1), staged(5, 1)]
    old = [staged(3, 1, 4), staged(4, 2, 4)]
    found = cells(tables(*fresh, *old))
    one, four = (found.only(updates_per_round=n).cells[0] for n in (1, 4))
    ours, theirs = with_common_seeds(one, four)
    assert theirs is four
    assert sorted(ours.members) == [(3, 1), (4, 1), (5, 1)]
    assert ours.scores("gold/win_rate") == {3: 0.5, 4: 0.5, 5: 0.5}
    assert with_common_seeds(one, one) == (one, one) and with_common_seeds(one, four)[0] is ours


def test_runs_without_stage_seeds_keep_the_seeds_that_one_condition_alone_has() -> None:
    runs = [record(f"r{seed}", seed) for seed in (1, 2)]
    other = replace(record("r3", 3), config=config(3, per_round=4))
    one, four = cells(tables(*runs, other)).cells
    assert with_common_seeds(one, four) == (one, four)

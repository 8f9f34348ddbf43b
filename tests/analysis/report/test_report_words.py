"""Names of a report and of its runs, the speed-up, and questions without an answer, as text."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlhf_lab_analysis.comparison.selection import cells
from rlhf_lab_analysis.report.groups import name_groups, page_title
from rlhf_lab_analysis.report.run_table import run_table
from rlhf_lab_analysis.sources.record import Record
from tests.support import table_records as made
from tests.support.question_records import Made
from tests.support.report_pages import Texts, page

pytestmark = pytest.mark.usefixtures("costly")


def one_seed() -> list[Record]:
    return [*Made(seconds=10).runs((0.8,)), *Made(mode="async", seconds=6).runs((0.81,))]


def title_of(records: list[Record]) -> str:
    return page_title(cells(made.tables(*records), unjudged=True).cells)


def test_a_page_is_named_by_what_its_runs_differ_in() -> None:
    assert title_of(one_seed()) == "sync against async (PPO, TL;DR nano, 0.3M)"
    ladder = [one for n in (1, 4, 16, 64) for one in Made(per_round=n).runs((0.8,))]
    assert title_of(ladder) == "N = 1 to 64 (PPO, TL;DR nano, 0.3M)"
    assert title_of(list(Made().runs((0.8,)))).startswith("One condition: ")


def test_runs_that_differ_in_any_key_are_two_conditions_with_its_values() -> None:
    runs = [
        made.record(f"r{rate}", config={**made.config(), "optim": {"lr": rate}})
        for rate in (1e-4, 3e-4)
    ]
    assert title_of(runs).startswith("learning rate = 0.0001, 0.0003")
    groups = name_groups(cells(made.tables(*runs), unjudged=True).cells)
    assert [group.title for group in groups] == ["learning rate 0.0001", "learning rate 0.0003"]


def test_conditions_without_settings_are_named_by_their_experiments() -> None:
    """As a CSV file has them; both had one name, and a figure drew one of them."""
    runs = [
        made.record(name, config={"env_id": "env", "exp_name": name, "seed": 1})
        for name in ("alpha", "beta")
    ]
    groups = name_groups(cells(made.tables(*runs), unjudged=True).cells)
    assert [group.title for group in groups] == ["alpha", "beta"]


def test_conditions_without_a_value_come_before_those_with_one() -> None:
    runs = [
        made.record(f"r{own}", config={**made.config(), "algo": {"name": "grpo", **own}})
        for own in ({"kl_coef": 0.1}, {})
    ]
    groups = name_groups(cells(made.tables(*runs), unjudged=True).cells)
    assert [group.cell.settings.get("algo.kl_coef") for group in groups] == [None, "0.1"]


def test_a_condition_of_two_sweeps_has_the_name_of_each() -> None:
    runs = [
        run
        for sweep in ("first_ladder", "second_ladder")
        for mode in ("sync", "async")
        for run in Made(mode=mode, sweep=sweep).runs((0.8,))
    ]
    groups = name_groups(cells(made.tables(*runs), unjudged=True).cells)
    assert [group.title for group in groups] == [
        f"{mode} (sweep {sweep} ladder)"
        for sweep in ("first", "second")
        for mode in ("async", "sync")
    ]


def test_runs_are_named_by_their_condition_and_seed() -> None:
    tables = made.tables(*one_seed(), made.record("cut", 4, state="failed"))
    groups = name_groups(cells(tables, unjudged=True).cells)
    titles = {group.cell.key: group.title for group in groups}
    rows = run_table(tables, titles, "gold/win_rate", Path())["runs"]
    assert [row.name for row in rows][:2] == ["async, seed 1", "sync, seed 1"]
    assert rows[2].name.endswith(", seed 4") and rows[2].group is None


def test_one_seed_has_its_numbers_and_no_verdict() -> None:
    found = Texts(page(one_seed()))
    assert "async is 1.67 times as fast as sync" in found.text
    assert "sync / async: 1.67 times, one seed: no interval" in found.text
    assert "It needs two seeds of each condition" in found.text
    assert found.row("async")[2] == "0.810 one seed"


def test_timelines_of_tables_are_laid_out_from_their_seconds() -> None:
    metrics = {"seconds/generate": 0.0, "seconds/score": 0.0, "seconds/train": 0.0}
    rounds = [
        {**row, **{name: n * (1.0 + place) for place, name in enumerate(metrics)},
         "seconds/wait": 0.0}
        for n, row in enumerate(made.rounds(8), start=1)
    ]  # fmt: skip
    text = page([made.record(f"r{seed}", seed, rounds=rounds) for seed in (1, 2)])
    assert 'class="spans"' in text and "laid out from the mean seconds of its rounds" in text
    assert "update\nround" in text

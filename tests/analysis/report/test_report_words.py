"""Names of a report and of its runs, the speed-up, and questions without an answer, as text."""

from __future__ import annotations

import pandas as pd
import pytest

from rlhf_lab_analysis.comparison.selection import cells
from rlhf_lab_analysis.report.groups import name_groups
from rlhf_lab_analysis.report.titles import page_title, run_names
from rlhf_lab_analysis.sources.record import Record
from tests.support import table_records as made
from tests.support.question_records import Made
from tests.support.report_pages import Texts, page

pytestmark = pytest.mark.usefixtures("costly")


def one_seed() -> list[Record]:
    return [*Made(seconds=10).runs((0.8,)), *Made(mode="async", seconds=6).runs((0.81,))]


def title_of(records: list[Record]) -> str:
    return page_title(name_groups(cells(made.tables(*records), unjudged=True).cells))


def test_a_page_is_named_by_what_its_runs_differ_in() -> None:
    assert title_of(one_seed()) == "sync against async (ppo, tldr_nano, nano_s)"
    ladder = [one for n in (1, 4, 16, 64) for one in Made(per_round=n).runs((0.8,))]
    assert title_of(ladder) == "N = 1 to 64 (ppo, tldr_nano, nano_s)"


def test_runs_are_named_by_where_they_lie_less_what_all_share() -> None:
    places = ["runs/a/seed-1", "runs/a/seed-2", "runs/b/seed-1"]
    names = run_names(pd.DataFrame({"run": ["x", "y", "z"], "place": places}))
    assert [*names.values()] == ["a/seed-1", "a/seed-2", "b/seed-1"]


def test_one_seed_has_its_numbers_and_no_verdict() -> None:
    found = Texts(page(one_seed()))
    assert "async needs 1.67 times less wall-clock than sync" in found.text
    assert "sync / async: 1.67 times, one seed: no interval" in found.text
    assert "No verdict." in found.text and "It needs two seeds of each condition" in found.text
    assert found.row("ppo async S=1")[2:] == ["0.810", "2", "24", "+1.0 points", "1.67x"]


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

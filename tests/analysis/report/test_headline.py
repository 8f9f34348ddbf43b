"""What the page says first of runs that differ in mode."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rlhf_lab_analysis.comparison.registry.answers import Criteria
from rlhf_lab_analysis.comparison.registry.questions import answers_of
from rlhf_lab_analysis.comparison.selection import cells
from rlhf_lab_analysis.report.headline import Headline, headlines
from rlhf_lab_analysis.sources.record import Record
from rlhf_lab_analysis.tables.table import Tables
from tests.support.question_records import Made
from tests.support.table_records import tables


def with_noise(run: Record) -> Record:
    """A run of sync whose seconds depend on its seed a little."""
    assert run.facts.seed is not None
    factor = 1 + 0.01 * run.facts.seed if run.config["mode"]["name"] == "sync" else 1.0
    rounds = [{**row, "seconds/wall": float(row["seconds/wall"]) * factor} for row in run.rounds]
    return replace(run, rounds=rounds)


def of(*conditions: Made, seeds: tuple[int, ...]) -> list[Headline]:
    """Headlines of conditions that have so many seeds, one number for each."""
    ends = [
        made.runs([0.5 + seed / 100 for seed in range(count)])
        for made, count in zip(conditions, seeds, strict=True)
    ]
    records = tables(*[with_noise(run) for runs in ends for run in runs])
    selection = cells(records)
    return headlines(selection, answers_of(selection, Criteria()), Criteria())


def test_settings_of_most_seeds_come_first() -> None:
    many = (Made(algo="rloo"), Made(algo="rloo", mode="async", seconds=8.0))
    found = of(Made(), Made(mode="async", seconds=20.0), *many, seeds=(1, 1, 3, 3))
    assert ["RLOO" in one.where for one in found] == [True, False]
    # Sync takes 1.01, 1.02 and 1.03 times 10 seconds a round, async 8.
    assert found[0].text == "async is 1.27 times as fast as sync"
    assert found[0].interval.startswith("sync / async: 1.27 [1.2")
    assert found[1].text == "async takes 1.98 times the wall-clock of sync"
    assert "one seed: no interval" in found[1].interval


def test_an_undecided_speed_up_is_no_speed_up_in_words() -> None:
    """Two seeds gave "1.60 times less" beside an interval from 0.15 to 17."""
    found = of(Made(), Made(mode="async", seconds=9.9), seeds=(2, 2))
    assert found[0].text == "whether async is faster than sync is not decided"


def test_seconds_are_those_of_one_sweep() -> None:
    """Sync of another sweep had shared its machine, and gave 2.25 in place of 1.54 times."""
    slow, alone = Made(seconds=30.0, sweep="beside_work"), Made(sweep="alone", snapshots=2)
    ahead = Made(mode="async", seconds=8.0, sweep="alone", snapshots=2)
    (only,) = of(slow, alone, ahead, seeds=(3, 3, 3))
    assert only.text == "async is 1.27 times as fast as sync"


@pytest.mark.pages
def test_the_first_line_has_the_number_of_the_benchmarks_page(kept_benchmark: Tables) -> None:
    selection = cells(kept_benchmark.only(sweep="sync_async_nano", model="nano_s"))
    first, *_ = headlines(selection, answers_of(selection, Criteria()), Criteria())
    page = (Path(__file__).parents[3] / "docs" / "benchmark.md").read_text()
    number, is_ratio, _ = first.interval.removeprefix("sync / async: ").partition(" times")
    assert is_ratio and number in page

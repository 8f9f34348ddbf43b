"""What the page says first of runs that differ in mode."""

from __future__ import annotations

from rlhf_lab_analysis.comparison.registry.answers import Criteria
from rlhf_lab_analysis.comparison.registry.questions import answers
from rlhf_lab_analysis.comparison.selection import cells
from rlhf_lab_analysis.report.headline import Headline, headlines
from tests.support.question_records import Made
from tests.support.table_records import tables


def of(*conditions: Made, seeds: tuple[int, ...]) -> list[Headline]:
    """Headlines of conditions that have so many seeds, one number for each."""
    ends = [
        made.runs([0.5 + seed / 100 for seed in range(count)])
        for made, count in zip(conditions, seeds, strict=True)
    ]
    records = tables(*[run for runs in ends for run in runs])
    return headlines(cells(records), answers(records), Criteria())


def test_settings_of_most_seeds_come_first() -> None:
    many = (Made(algo="rloo"), Made(algo="rloo", mode="async", seconds=8.0))
    found = of(Made(), Made(mode="async", seconds=20.0), *many, seeds=(1, 1, 3, 3))
    assert ["rloo" in one.where for one in found] == [True, False]
    assert found[0].text == "async needs 1.25 times less wall-clock than sync"
    assert found[1].text == "async needs 2.00 times the wall-clock of sync"
    assert "one seed: no interval" in found[1].interval

"""Page, figure and table decide a comparison by one rule, at one level."""

from __future__ import annotations

from typing import Any

import pytest

from rlhf_lab_analysis.comparison.registry.answers import Criteria
from rlhf_lab_analysis.comparison.registry.decisions import decide_all
from rlhf_lab_analysis.comparison.registry.definitions import FOLDER, read_registry
from rlhf_lab_analysis.comparison.selection import Selection, cells
from rlhf_lab_analysis.publication_tables.conditions import Conditions
from rlhf_lab_analysis.publication_tables.differences import differences
from rlhf_lab_analysis.publication_tables.options import TableOptions
from rlhf_lab_analysis.statistics.decisions import Verdict
from rlhf_lab_analysis.tables.table import Tables
from rlhf_lab_analysis.words import in_words
from tests.support import table_records as made
from tests.support.question_records import Made

pytestmark = pytest.mark.usefixtures("costly")

LADDER = "off_policy_ladder_nano"
HIGH = (0.90, 0.92, 0.94, 0.91)
LOSSES = {"ppo": (0.001, 0.002, 0.003, 0.001), "online_dpo": (0.10, 0.12, 0.08, 0.11)}


def check_one_rule(tables: Tables, ladder: Selection, algos: int) -> set[str]:
    """Of a ladder of so many algorithms, each N against N=1; returns the verdicts of the table."""
    options = TableOptions(metrics=("gold/win_rate",), baseline="N=1")
    conditions = Conditions(ladder, options.style)
    (table,) = differences(tables, conditions, options)
    registry = read_registry(FOLDER / "async_rlhf.yaml")
    decided = {
        (one.claim.name, in_words(one.answer.setting.split(", ")[-1])): one
        for one in decide_all(registry, ladder, Criteria()).decided
    }
    looks = {
        f"N={after}": one.looks
        for one in registry.claims
        for after in (4, 16, 64)
        if one.name in (f"n{after}_costs", f"n{after}_costs_nothing")
    }
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    assert rows
    for row in rows:
        algo, _, n = str(row["condition"]).rpartition(" ")
        value: Any = row["difference"]
        # Two one-sided tests of each algorithm, at each look.
        level = f"{100 * (1 - 2 * 0.05 / algos / looks.get(n, 1)):.4g}%"
        assert row["level"] == level
        if n in ("N=2", "N=4"):
            found = decided[f"n{n[-1]}_costs_nothing", algo]
            holds = found.answer.verdict is Verdict.holds
            is_equal = row["verdict"] == "equal within 2 points"
            ends = found.answer.numbers[0].estimate
            width = (ends.high - ends.low) / (value.high - value.low)
            assert ends.point == pytest.approx(value.point)
            assert holds == is_equal and width == pytest.approx(1)
    return {str(row["verdict"]) for row in rows}


def test_page_and_table_have_one_rule() -> None:
    """Best-of-2 at N=4 was cannot tell on the page and equal in the table."""
    runs = [
        run
        for algo, losses in LOSSES.items()
        for n, lost in ((1, 0.0), (4, 1.0))
        for run in Made(algo=algo, per_round=n, sweep=LADDER).runs(
            [high - lost * loss for high, loss in zip(HIGH, losses, strict=True)]
        )
    ]
    tables = made.tables(*runs)
    found = check_one_rule(tables, cells(tables), len(LOSSES))
    assert found == {"equal within 2 points", "worse by more than 2 points"}

"""The simulation of comparisons while seeds come in: what each share counts."""

from __future__ import annotations

import sys

import pytest

from benchmarks.speed import sequential_level
from rlhf_lab_analysis.statistics.plans import Bound


def test_a_condition_far_above_is_found_and_no_other_pair() -> None:
    found = sequential_level.claims(Bound.joint, "abc", 50.0, 1)
    assert found == {("a", "b"): True, ("a", "c"): True, ("b", "c"): False}
    assert not any(sequential_level.claims(Bound.joint, "abc", 0.0, 1).values())


def test_the_table_has_a_line_for_each_bound_and_number_of_conditions(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["sequential_level", "--runs", "4"])
    sequential_level.main()
    printed = capsys.readouterr().out
    for bound in Bound:
        assert sum(f"{bound.value} " in line for line in printed.splitlines()) == 3

"""Runs beside busy processes: which are timed, in which turns, and what their shares are of."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from benchmarks.speed import beside_load
from benchmarks.speed.beside_load import BUSY, DEFAULT, main, measure, run_seconds, table
from rlhf_lab.types.errors import UserError
from tests.support.survival import descendants

pytestmark = pytest.mark.usefixtures("processes")


def test_each_setting_is_timed_beside_each_load_in_turns() -> None:
    seen: list[tuple[str, int]] = []
    before = len(descendants(os.getpid()))

    def seconds(spins: str) -> float:
        seen.append((spins, len(descendants(os.getpid())) - before))
        return float(len(seen))

    found = measure((0, 2), ("a", "b"), 2, seconds)
    assert seen[1:] == [
        *(("a", 0), ("b", 0), ("a", 2), ("b", 2)),
        *(("b", 0), ("a", 0), ("b", 2), ("a", 2)),
    ]
    assert len(descendants(os.getpid())) == before, "none goes on"
    assert found[1] == {(0, "b"): 6.0, (0, "a"): 7.0, (2, "b"): 8.0, (2, "a"): 9.0}


def test_shares_are_of_the_run_beside_nothing_in_the_same_repeat() -> None:
    found = [
        {(0, "a"): 10.0, (0, "b"): 12.0, (2, "a"): 40.0, (2, "b"): 20.0},
        {(0, "b"): 18.0, (0, "a"): 20.0, (2, "b"): 30.0, (2, "a"): 60.0},
    ]
    # Two more processes on two cores: half of the machine is left.
    assert table(found, cores=2).rows == [
        ["0", "a", "15.0 [10.0, 20.0]", "1.00 [1.00, 1.00]"],
        ["0", "b", "15.0 [12.0, 18.0]", "1.05 [0.90, 1.20]"],
        ["2", "a", "50.0 [40.0, 60.0]", "1.75 [1.50, 2.00]"],
        ["2", "b", "25.0 [20.0, 30.0]", "0.88 [0.75, 1.00]"],
    ]


def test_the_table_is_written_into_a_folder_that_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beside_load, "run_seconds", lambda *_: 2.0)
    path = tmp_path / "new" / "table.json"
    asked = ["--busy", "0", "--spins", DEFAULT, "--repeats", "1", "--out", str(path)]
    assert main([*asked, "run.updates=6"]) == 0
    (row,) = json.loads(path.read_text())
    assert row["spins"] == DEFAULT and row["seconds"].startswith("2.0")


def test_without_a_run_beside_nothing_there_is_no_fair_time(tmp_path: Path) -> None:
    assert BUSY[0] == 0
    with pytest.raises(UserError, match="--busy without 0"):
        main(["--busy", "2", "--out", str(tmp_path / "table.json")])


def test_a_run_that_fails_has_no_seconds() -> None:
    with pytest.raises(UserError, match="ended with code 2: correct its options"):
        run_seconds(DEFAULT, ["run.updates=-1"])

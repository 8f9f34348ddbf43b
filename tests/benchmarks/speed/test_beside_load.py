"""Runs beside busy processes: which are timed, and what their shares are of."""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path

import pytest

from benchmarks.speed import beside_load, program
from benchmarks.speed.beside_load import busy_processes, main, seconds, table
from rlhf_lab.types.errors import UserError
from tests.support.survival import descendants

pytestmark = pytest.mark.usefixtures("processes")


def test_busy_processes_end_with_the_block() -> None:
    before = len(descendants(os.getpid()))
    with busy_processes(2):
        assert len(descendants(os.getpid())) == before + 2
    assert len(descendants(os.getpid())) == before


def test_another_side_begins_each_repeat() -> None:
    order: list[str] = []

    def side(name: str, repeat: int) -> str:
        order.append(name)
        return f"{name}{repeat}"

    found = program.in_turns({name: partial(side, name) for name in "abc"}, 4)
    assert "".join(order) == "abcbcacababc"
    assert found["b"] == ["b0", "b1", "b2", "b3"]


def test_shares_are_of_the_run_beside_nothing_in_the_same_repeat() -> None:
    # Two more processes on two cores: half of the machine is left.
    assert table({0: [10, 20], 2: [40, 60]}, cores=2).rows == [
        ["0", "15.0 [10.0, 20.0]", "1.00 [1.00, 1.00]"],
        ["2", "50.0 [40.0, 60.0]", "1.75 [1.50, 2.00]"],
    ]


def test_the_table_is_written_into_a_folder_that_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beside_load, "seconds", lambda *_: 2.0)
    path = tmp_path / "new" / "table.json"
    asked = ["--busy", "0", "--repeats", "1", "--out", str(path)]
    assert main([*asked, "run.updates=6"]) == 0
    (row,) = json.loads(path.read_text())
    assert row["seconds"].startswith("2.0")


def test_without_a_run_beside_nothing_there_is_no_fair_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--busy", "2", "--out", str(tmp_path / "table.json")]) == 2
    assert "--busy without 0" in capsys.readouterr().err


def test_a_run_that_fails_has_no_seconds() -> None:
    with pytest.raises(UserError, match="ended with code 2: correct its options"):
        seconds(0, ["run.updates=-1"])

"""A run with different options, in turns: what is shown of the sides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.speed import program, sides
from benchmarks.speed.sides import CPU, DIGEST, PHASES, main, table_of, train
from tests.support.examples import call


def trained(wall: float, cpu: float, digest: str) -> dict[str, Any]:
    return {**dict.fromkeys(PHASES, 0.0), "wall": wall, CPU: cpu, DIGEST: digest}


def test_a_table_of_two_sides_by_hand() -> None:
    found = {
        "mode=sync": [trained(2.0, 4.0, "aaaaaaaaaa"), trained(4.0, 8.0, "aaaaaaaaaa")],
        "mode=async": [trained(1.0, 6.0, "bbbbbbbbbb"), trained(3.0, 4.0, "bbbbbbbbbb")],
    }
    table = table_of(found)
    assert table.columns == ["", "mode=sync", "mode=async"]
    rows = {name: texts for name, *texts in table.rows}
    assert rows["wall"] == ["3.000 [2.000, 4.000]", "2.000 [1.000, 3.000]"]
    # 6 / 4 and 4 / 8 within the repeats.
    assert rows["CPU, ratio"] == ["1.000 [1.000, 1.000]", "1.000 [0.500, 1.500]"]
    assert rows["last weights"] == ["aaaaaaaa", "bbbbbbbb"]


def test_a_run_has_the_seconds_of_its_ledger(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def here(*words: str) -> None:
        assert call(*words, monkeypatch=monkeypatch) == 0

    monkeypatch.setattr(sides, "run", here)
    found = train(["debug=tiny", "reward=task_rule", "run.updates=1", f"output.cache={cache}"])
    assert set(found) == {*PHASES, CPU, DIGEST}
    assert found["wall"] >= found["update"] > 0
    assert len(found[DIGEST]) > 8


def test_one_side_and_a_run_that_fails_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--side", "mode=sync"]) == 2
    assert "pass --side twice" in capsys.readouterr().err
    assert program.command("train")[1:3] == ["-m", "rlhf_lab.cli.main"]

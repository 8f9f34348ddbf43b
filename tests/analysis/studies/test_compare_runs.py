"""Runs side by side: the tables, what is left out, and the figures."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rlhf_lab.runs.trackers.console import Console
from rlhf_lab_analysis.studies import compare_runs
from rlhf_lab_analysis.studies.compare_runs import phase_table, run_table, runs_of
from rlhf_lab_analysis.studies.seeds import select_runs
from rlhf_lab_analysis.tables.summary import show
from tests.support import study_runs

SECONDS = {f"seconds/{phase}": 1.0 for phase in compare_runs.PHASES}


def make_run(folder: Path, mode: str, seed: int, wall: float, state: str = "finished") -> None:
    """A run with a win-rate from 40% to (80 + seed)%, of the same sweep as all others."""
    versions = [
        {"version": version, "gold/win_rate": rate, "gold/win_rate_low": rate - 0.1,
         "gold/win_rate_high": rate + 0.1, "kl/sft_k1": float(version), "eval/prompts": 100}
        for version, rate in ((0, 0.4), (4, 0.8 + seed / 100))
    ]  # fmt: skip
    settings = {"mode": {"name": mode, "max_staleness": int(mode != "sync")}}
    settings["tracker"] = {"sweep": "s", "condition": f"mode={mode}"}
    metrics = SECONDS | {"seconds/wall": wall, "lag/updates_min": 0, "lag/updates_max": 1}
    study_runs.make_run(folder, seed, versions, settings, metrics, state=state)


def test_runs_are_compared_and_the_others_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_run(tmp_path / "async-1", "async", 1, 5.0)
    make_run(tmp_path / "sync-1", "sync", 1, 10.0)
    make_run(tmp_path / "broken", "sync", 2, 10.0, state="failed")
    assert compare_runs.main([str(tmp_path), "--out", str(tmp_path / "figures")]) == 0
    text = capsys.readouterr().out
    lines = [line.split() for line in text.splitlines()]
    # A run is named by what differs, and its seed.
    runs = {line[0]: line for line in lines if len(line) == 16 and line[1:3] == ["seed", "1"]}
    assert runs["sync,"][4:10] == ["40.0", "[30.0,", "50.0]", "81.0", "[71.0,", "91.0]"]
    assert [runs[name][-4] for name in ("sync,", "async,")] == ["1.00", "2.00"]
    assert f"left out: {tmp_path}/broken (its state is failed)" in text
    assert (tmp_path / "figures" / "fig2_timelines.png").stat().st_size > 1000


def test_conditions_have_intervals_over_seeds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compare_runs, "FIGURES", ())
    for seed in (1, 2, 3):
        make_run(tmp_path / f"sync-{seed}", "sync", seed, 10.0)
        make_run(tmp_path / f"async-{seed}", "async", seed, 5.0 + seed / 10)
    assert compare_runs.main([str(tmp_path)]) == 0
    text = capsys.readouterr().out
    # 81%, 82%, 83% on log odds: 82% with a half-width of 2.48 points / (0.82 * 0.18) there.
    assert "0.820 [0.794, 0.844]" in text
    assert "no worse" in text or "equal" in text


@pytest.mark.parametrize("width", [60, 80, 120])
def test_its_tables_fit_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(compare_runs, "FIGURES", ())
    for mode, wall in (("sync", 123456.5), ("async", 98765.5)):
        make_run(tmp_path / f"{'x' * 50}-{mode}-12", mode, 1, wall)
    tables, selection = select_runs([tmp_path], Console(quiet=True))
    console = Console(quiet=False, is_terminal=True)
    for table in (run_table(runs_of(selection)), phase_table(runs_of(selection))):
        console.table(table.title, table.columns, table.rows)
    show(tables, console)
    lines = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out).splitlines()
    rows = [line for line in lines if "sync" in line]
    assert len(rows) >= 4 and all(len(line) <= width for line in rows)
    assert sum("40.0 [30.0, 50.0]" in line for line in rows) == 2
    if width == 120:
        assert any("123456.5" in line for line in rows)


def test_a_folder_without_runs_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare_runs.main([str(tmp_path)]) == 2
    assert "holds nothing to read" in capsys.readouterr().err

"""Runs side by side: what is printed of them, what is left out, and the figures."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rlhf_lab.cli.main import run_command
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.comparison.selection import cells
from rlhf_lab_analysis.plots.figure import draw
from rlhf_lab_analysis.plots.style import Style
from rlhf_lab_analysis.studies.compare import DIFFERENCES, ENDS, print_means, requests_of
from rlhf_lab_analysis.tables.gather import gather
from rlhf_lab_analysis.tables.summary import show
from tests.support import study_runs


def make_run(folder: Path, mode: str, seed: int, wall: float, state: str = "finished") -> None:
    """A run with a win-rate from 40% to (80 + seed)%, of the same sweep as all others."""
    versions = [
        {"version": version, "gold/win_rate": rate, "gold/win_rate_low": rate - 0.1,
         "gold/win_rate_high": rate + 0.1, "kl/sft_k1": float(version), "eval/prompts": 100}
        for version, rate in ((0, 0.4), (4, 0.8 + seed / 100))
    ]  # fmt: skip
    settings = {"mode": {"name": mode, "max_staleness": int(mode != "sync")}}
    settings["tracker"] = {"sweep": "s", "condition": f"mode={mode}"}
    metrics = {"seconds/wall": wall, "lag/updates_min": 0, "lag/updates_max": 1}
    study_runs.make_run(folder, seed, versions, settings, metrics, state=state)


def test_runs_are_compared_and_the_others_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_run(tmp_path / "async-1", "async", 1, 5.0)
    make_run(tmp_path / "sync-1", "sync", 1, 10.0)
    make_run(tmp_path / "broken", "sync", 2, 10.0, state="failed")
    assert run_command("compare", [str(tmp_path), "--out", str(tmp_path / "figures")]) == 0
    text = capsys.readouterr().out
    lines = [line.split() for line in text.splitlines()]
    rows = [line for line in lines if len(line) == 5 and line[1] == "1"]
    ends = [["async", "1", "0.810", "4", "5"], ["sync", "1", "0.810", "4", "10"]]
    assert rows == [*ends, ["async", "1", "0.000", "0.000", "-5"]]
    assert f"left out: {tmp_path}/broken (its state is failed)" in text
    assert (tmp_path / "figures" / "ends.png").stat().st_size > 1000
    # Beside runs it would be read as one.
    assert not list(tmp_path.rglob("*.csv"))


def test_conditions_differ_in_pairs_of_seeds_with_intervals(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed in (1, 2, 3):
        make_run(tmp_path / f"sync-{seed}", "sync", seed, 10.0)
        make_run(tmp_path / f"async-{seed}", "async", seed, 5.0 + seed / 10)
    assert run_command("compare", [str(tmp_path)]) == 0
    text = capsys.readouterr().out
    # 81%, 82%, 83% on log odds: 82% with a half-width of 2.48 points / (0.82 * 0.18) there.
    assert "0.820 [0.794, 0.844]" in text
    # 4.9, 4.8 and 4.7 seconds less than sync: 4.303 times 0.1 / sqrt(3).
    assert "-4.800 [-5.048, -4.552]" in text
    assert (tmp_path / "comparison" / "differences.pdf").is_file()


def test_a_baseline_is_named_or_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for mode in ("sync", "async"):
        make_run(tmp_path / mode, mode, 1, 10.0)
    assert run_command("compare", [str(tmp_path), "--diff", "mode=async"]) == 0
    assert "less that of async" in capsys.readouterr().out
    assert run_command("compare", [str(tmp_path), "--diff", "mode=both"]) == 0
    assert "not drawn: differences: --diff mode=both" in capsys.readouterr().out


@pytest.mark.parametrize("width", [60, 80, 120])
def test_its_tables_fit_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    for mode, wall in (("sync", 123456.5), ("async", 98765.5)):
        make_run(tmp_path / f"{'x' * 50}-{mode}-12", mode, 1, wall)
    tables = gather([str(tmp_path)])
    console = Console(quiet=False, is_terminal=True)
    for name, request in requests_of(cells(tables), "").items():
        if name in (ENDS, DIFFERENCES):
            print_means(name, draw(cells(tables), request, Style()), console)
    show(tables, console)
    lines = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out).splitlines()
    rows = [line for line in lines if "sync" in line]
    assert len(rows) >= 4 and all(len(line) <= width for line in rows)


def test_a_folder_without_runs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds nothing to read"):
        run_command("compare", [str(tmp_path)])


def test_runs_of_which_none_counts_are_refused(tmp_path: Path) -> None:
    make_run(tmp_path / "broken", "sync", 2, 10.0, state="failed")
    with pytest.raises(UserError, match=r"no finished, evaluated run in .*: `rlhf-lab runs`"):
        run_command("compare", [str(tmp_path)])

"""Comparing runs: what is shown, what is left out and why, and the figure."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from analysis import compare
from rlhf_lab.runs.folder import EVALS, METRICS, RunDirectory

pytestmark = pytest.mark.usefixtures("costly")


def make_run(folder: Path, mode: str, seed: int, seconds: float, state: str = "finished") -> None:
    manifest = {"mode": mode, "seed": seed, "algo": "a", "task": "t", "model": "m"}
    record = RunDirectory.create(folder, manifest, "")
    rows = [
        {
            "step": step,
            **{f"seconds/{name}": 1.0 for name in compare.PHASE_NAMES},
            "seconds/other": 0.1,
            "seconds/wall": seconds * (step + 1) / 2,
            "seconds/device": seconds,
            "lag/updates_min": 0,
            "lag/updates_max": 1,
        }
        for step in range(2)
    ]
    judged = [
        {
            "version": version,
            "gold/win_rate": rate,
            "gold/win_rate_low": rate - 0.1,
            "gold/win_rate_high": rate + 0.1,
            "kl/sft_k1": float(version),
            "eval/prompts": 100,
        }
        for version, rate in ((0, 0.4), (2, 0.8 + seed / 100))
    ]
    (record.folder / METRICS).write_text("".join(json.dumps(row) + "\n" for row in rows))
    (record.folder / EVALS).write_text("".join(json.dumps(row) + "\n" for row in judged))
    record.finish(state)  # type: ignore[arg-type]


def test_runs_are_compared_and_the_others_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_run(tmp_path / "async-1", "async", 1, 5.0)
    make_run(tmp_path / "sync-1", "sync", 1, 10.0)
    make_run(tmp_path / "broken", "sync", 2, 10.0, state="failed")
    assert compare.main([str(tmp_path)]) == 0
    text = capsys.readouterr().out
    lines = {line.split()[0]: line for line in text.splitlines() if line.strip()}
    assert "1.00" in lines["sync-1"] or "2.00" in text
    assert "2.00" in text, "async is twice as fast"
    assert f"left out: {tmp_path}/broken (failed)" in text
    for kind in ("png", "pdf"):
        assert f"wrote {tmp_path}/compare.{kind}" in text
        assert (tmp_path / f"compare.{kind}").stat().st_size > 1000
    assert "fewer than 3 seeds" in text


def test_intervals_over_seeds_are_students(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed in (1, 2, 3):
        make_run(tmp_path / f"sync-{seed}", "sync", seed, 10.0)
        make_run(tmp_path / f"async-{seed}", "async", seed, 5.0)
    assert compare.main([str(tmp_path)]) == 0
    text = capsys.readouterr().out
    # 81, 82, 83: mean 82, standard error 1 / sqrt(3), t = 4.303
    assert "82.0 [79.5, 84.5]" in text
    assert "2.00 [2.00, 2.00]" in text
    assert "fewer than 3 seeds" not in text


def test_a_run_alone_has_no_interval_over_seeds() -> None:
    assert compare.interval([], 1) == ""
    assert compare.interval([2.0], 1) == "2.0"


def test_an_interval_with_nan_is_nan() -> None:
    assert compare.interval([2.0, float("nan")], 1) == "nan"


def test_nothing_to_compare_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compare.main([str(tmp_path)]) == 2
    assert "no finished, evaluated run" in capsys.readouterr().err

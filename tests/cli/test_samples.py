"""What `rlhf-lab samples` prints."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rlhf_lab.cli.samples import SampleChoice, sample_lines, token_lines
from rlhf_lab.runs.folder import MANIFEST, ROLLOUTS
from rlhf_lab.types.errors import UserError
from tests.support.examples import call
from tests.support.fuzz_runs import sampled_at


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Three rounds of two samples each."""
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / MANIFEST).write_text(json.dumps({"state": "finished"}))
    samples = [replace(sampled_at(r), sample=s) for r in range(3) for s in range(2)]
    samples[-1] = replace(samples[-1], response="red\x1b[31m " + "word " * 30 + "\nnext")
    (folder / ROLLOUTS).write_text("".join(json.dumps(one.row()) + "\n" for one in samples))
    return folder


def test_the_last_samples_are_printed_within_the_width(run: Path) -> None:
    lines = list(sample_lines(run, SampleChoice(count=1), 60))
    assert lines[0].startswith("round 2, a, sample 1: reward 1, credit 0.5, version 1, lag 1")
    assert max(map(len, lines)) <= 60
    text = "\n".join(lines)
    assert r"red\x1b[31m word" in text and "\n    next\n" in text


def test_one_round_is_printed(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        assert call("samples", str(run), "--round", "1", monkeypatch=patch) == 0
    out = capsys.readouterr().out
    assert out.count("round 1, ") == 2 and "round 2, " not in out


def test_what_cannot_be_shown_is_refused(run: Path) -> None:
    with pytest.raises(UserError, match=r"--round 9: .* has samples of 0 to 2"):
        list(sample_lines(run, SampleChoice(round=9), 60))
    (run / ROLLOUTS).unlink()
    with pytest.raises(UserError, match=r"unless tracker.samples=0"):
        list(sample_lines(run, SampleChoice(count=1), 60))


def test_samples_are_found_by_text_reward_and_length(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    values = [(0.5, 9), (2.0, 3), (-1.0, 5)]
    samples = [
        replace(sampled_at(r), reward=reward, tokens=tokens, response=f"answer {r}")
        for r, (reward, tokens) in enumerate(values)
    ]
    (run / ROLLOUTS).write_text("".join(json.dumps(one.row()) + "\n" for one in samples))

    def rounds(*options: str) -> list[str]:
        assert call("samples", str(run), *options, monkeypatch=monkeypatch) == 0
        out = capsys.readouterr().out
        return [line.split(",")[0] for line in out.splitlines() if line.startswith("round")]

    assert rounds("--sort", "reward") == ["round 2", "round 0", "round 1"]
    assert rounds("--sort", "reward", "--last", "1") == ["round 1"]
    assert rounds("--sort", "length", "--first", "2") == ["round 1", "round 2"]
    assert rounds("--contains", "answer 1") == ["round 1"]
    assert call("samples", str(run), "--contains", "zebra", monkeypatch=monkeypatch) != 0
    assert "none of 3 samples has this text" in capsys.readouterr().err
    assert call("samples", str(run), "--first", "0", monkeypatch=monkeypatch) != 0
    assert "--first 0 shows nothing" in capsys.readouterr().err


TURNS: list[Any] = [
    {"writer": "environment", "text": "hello", "token_texts": ["he", "llo"]},
    {
        **{"writer": "policy", "text": "ask", "token_texts": ["ask", "\x1b[1m"], "reward": 0.5},
        **{"logps": [-0.25, None], "version": 1, "newest_version": 2, "versions": [1, 2]},
    },
    {
        **{"writer": "policy", "text": "no", "token_texts": [" no"], "reward": 0.0},
        **{"logps": [-1.5], "version": 2, "newest_version": 2},
    },
]


def test_the_tokens_of_a_sample_are_a_table(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    samples = [replace(sampled_at(r), turns=TURNS) for r in range(4)]
    (run / ROLLOUTS).write_text("".join(json.dumps(one.row()) + "\n" for one in samples))
    assert call("samples", str(run), "--tokens", monkeypatch=monkeypatch) == 0
    out = capsys.readouterr().out
    assert out.startswith("round 3, ") and out.count("round ") == 1
    cells = [line.split() for line in out.splitlines()]
    assert [row for row in cells if len(row) > 1 and row[1] in ("environment", "policy")] == [
        ["0", "environment", "-", "-", "-", "'he'"],
        ["1", "environment", "-", "-", "-", "'llo'"],
        ["2", "policy", "-0.2500", "1", "2", "'ask'"],
        ["3", "policy", "-", "2", "1", r"'\x1b[1m'"],
        ["4", "policy", "-1.5000", "2", "1", "'", "no'"],
    ]
    assert call("samples", str(run), "--tokens", "--first", "2", monkeypatch=monkeypatch) == 0
    assert capsys.readouterr().out.count("place") == 2


def test_samples_that_were_kept_without_tokens_have_no_table(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("samples", str(run), "--tokens", monkeypatch=monkeypatch) != 0
    assert "was kept without tokens" in capsys.readouterr().err


def test_what_no_version_of_the_run_wrote_has_no_lag() -> None:
    turn = TURNS[2] | {"version": -1, "newest_version": -1}
    (row,) = list(token_lines(replace(sampled_at(3), turns=[turn]), 80))[1:]
    assert row.split()[2:5] == ["-1.5000", "-1", "-"]

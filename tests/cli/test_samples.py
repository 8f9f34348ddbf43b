"""What `rlhf-lab samples` prints."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from rlhf_lab.cli.samples import Choice, sample_lines
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
    lines = list(sample_lines(run, Choice(count=1), 60))
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
        list(sample_lines(run, Choice(round=9), 60))
    (run / ROLLOUTS).unlink()
    with pytest.raises(UserError, match=r"unless tracker.samples=0"):
        list(sample_lines(run, Choice(count=1), 60))


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

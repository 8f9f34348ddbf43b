"""A run that pauses goes on with the bits of one that never did, and says what it is worth."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rlhf_lab.experiment.config.config import Config
from rlhf_lab.experiment.rules.checks import check
from rlhf_lab.experiment.run import lifecycle
from rlhf_lab.runs.jsonl import read_rows
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.runs.verification import verify_run
from rlhf_lab.types.errors import UserError
from tests.conftest import MakeConfig
from tests.support.examples import FACTS
from tests.support.survival import exact_rows, outcome
from tests.support.variants import names

# Four rounds of a rule: no reward model to be trained.
SHORT = ("task=arithmetic", "reward=task_rule", "run.updates=8", "run.updates_per_round=2")
MODES = {
    "sync": ("mode=sync",),
    "lagged": ("mode=lagged", "mode.max_staleness=2"),
    "thread": ("mode=async", "mode.executor=thread", "mode.max_staleness=1"),
    "replay": ("mode=lagged", "mode.max_staleness=1", "run.buffer_rounds=2", "run.fresh_share=0.5"),
    "partial": ("mode=partial", "mode.executor=inline", "mode.segment_tokens=3"),
    "recycled": (
        *("mode=partial", "mode.executor=inline", "mode.segment_tokens=2"),
        *("mode.over_provision=2", "run.buffer_rounds=2", "run.fresh_share=0.5"),
    ),
}
QUIET = Console(quiet=True)


def run(config: Config) -> None:
    lifecycle.train(config, QUIET, FACTS)


def state(folder: Path) -> str:
    return str(json.loads((folder / "manifest.json").read_text())["state"])


@pytest.mark.parametrize("mode", names(MODES, ["lagged", "thread", "recycled"]))
def test_a_run_that_paused_twice_ends_as_one_that_never_did(
    make_config: MakeConfig, tmp_path: Path, mode: str
) -> None:
    whole, paused = tmp_path / "whole", tmp_path / "paused"
    options = (*SHORT, *MODES[mode], "eval.snapshots=0", "output.resume=true")
    run(make_config(*options, f"output.dir={whole}"))
    for pause in (1, 3):
        run(make_config(*options, f"output.dir={paused}", f"checkpoint.pause_round={pause}"))
        assert state(paused) == "paused"
        assert len(read_rows(paused / "metrics.jsonl")) == pause
        assert (paused / f"weights/00000{pause}.safetensors").is_file()
        assert not (paused / "policy").exists()
    run(make_config(*options, f"output.dir={paused}"))
    assert state(paused) == "finished"
    assert outcome(paused) == outcome(whole)
    # No second of an earlier process is counted twice, and every file is recorded.
    assert verify_run(paused) == ([], [])
    for name in ("schedule.jsonl", "rollouts.jsonl"):
        assert (paused / name).read_text() == (whole / name).read_text()


def test_a_manifest_has_the_bytes_of_each_kept_checkpoint(
    make_config: MakeConfig, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    options = (*SHORT, "eval.snapshots=0", f"output.dir={folder}")
    run(make_config(*options, "checkpoint.minutes=0", "checkpoint.keep_every=2"))
    found = json.loads((folder / "manifest.json").read_text())["checkpoints"]
    assert found["rounds"] == [2]
    assert found["bytes"] == [sum(p.stat().st_size for p in folder.glob("checkpoints/*/*"))]


def test_a_pause_that_was_reached_is_not_passed(make_config: MakeConfig, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    options = (*SHORT, "eval.snapshots=0", f"output.dir={folder}", "output.resume=true")
    paused = make_config(*options, "checkpoint.pause_round=2")
    run(paused)
    before = (folder / "metrics.jsonl").read_text()
    run(paused)
    assert (folder / "metrics.jsonl").read_text() == before
    with pytest.raises(UserError, match=r"checkpoint.pause_round=1: the run has done 2 rounds"):
        run(make_config(*options, "checkpoint.pause_round=1"))


def test_validation_is_the_evaluation_without_the_judge(
    make_config: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    sampled = ("eval.snapshots=2", "eval.samples=2", "eval.temperature=0.5", "eval.validate=proxy")
    options = (*SHORT, *sampled, f"output.dir={folder}", "output.resume=true")
    with monkeypatch.context() as patch:
        patch.setattr("rlhf_lab.experiment.run.validate.build_evaluator", None)
        run(make_config(*options, "checkpoint.pause_round=2"))
        run(make_config(*options, "checkpoint.pause_round=2"))
    run(make_config(*options))
    rows = exact_rows(folder / "validation.jsonl")
    evaluated = {row["version"]: row for row in exact_rows(folder / "evals.jsonl")}
    assert [row["version"] for row in rows] == [2, 4]
    for row in rows:
        assert row.pop("validate") == "proxy"
        assert row == {key: evaluated[row["version"]][key] for key in row}
        assert "proxy/mean" in row and "gold/mean" not in row


def test_the_judge_is_asked_too_if_wanted(make_config: MakeConfig, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    options = (*SHORT, "eval.snapshots=1", f"output.dir={folder}", "eval.validate=judge")
    run(make_config(*options))
    (row,) = exact_rows(folder / "validation.jsonl")
    last = exact_rows(folder / "evals.jsonl")[-1]
    assert row.pop("validate") == "judge"
    assert row == {key: last[key] for key in row}
    assert "gold/win_rate" in row


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["checkpoint.pause_round=-1"], r"checkpoint.pause_round=-1 is out of range: choose 0 "),
        (
            ["checkpoint=none", "checkpoint.pause_round=2"],
            r"pause_round=2 with checkpoint=none: .* pass checkpoint=minutes",
        ),
        (["checkpoint.pause_round=5"], r"pause_round=5: the run has 4 rounds; choose 1 to 3"),
    ],
)
def test_a_pause_that_cannot_be_is_refused(
    make_config: MakeConfig, options: list[str], complaint: str
) -> None:
    with pytest.raises(UserError, match=complaint):
        check(make_config(*SHORT, *options))

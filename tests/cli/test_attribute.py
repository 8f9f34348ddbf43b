"""`rlhf-lab attribute` starts a fork for every change and round, once."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from rlhf_lab.cli import train
from rlhf_lab.cli.attribute import ATTRIBUTE, run_forks
from rlhf_lab.runs.jsonl import read_rows
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.errors import UserError


def test_forks_are_started_once_and_refusals_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[list[str]] = []

    def run(words: list[str]) -> None:
        if "correction=other" in words:
            raise UserError("no such correction")
        started.append(words)
        folder = Path(next(word for word in words if word.startswith("output.dir="))[11:])
        folder.mkdir(parents=True)
        (folder / "manifest.json").write_text(json.dumps({"state": "finished"}))

    monkeypatch.setattr("rlhf_lab.cli.attribute.FORK", SimpleNamespace(run=run))
    factors = {"lag": ("mode=sync",), "correction": ("correction=other",), "rows 0 to 1": ("x=1",)}
    for _ in range(2):
        done, refused = run_forks(tmp_path / "a", tmp_path / "out", range(3, 5), factors)
        assert refused == {"correction": "no such correction"}
        assert {factor: [path.name for path in paths] for factor, paths in done.items()} == {
            "lag": ["lag-3", "lag-4"],
            "rows 0 to 1": ["rows_0_to_1-3", "rows_0_to_1-4"],
        }
    assert len(started) == 4
    assert started[0] == [
        str(tmp_path / "a"),
        *("round=3", "mode=sync", f"output.dir={tmp_path}/out/lag-3"),
        *("output.resume=true", "output.quiet=true"),
    ]


# Two prompts a round, and a rate at which the policy's entropy falls by a third.
COLLAPSING = (
    *("debug=tiny", "algo=grpo", "run.group_size=4", "reward=task_rule", "run.updates=8"),
    *("run.groups_per_update=2", "mode=lagged", "optim.lr=0.02", "optim.warmup_updates=0"),
    *("eval=none", "eval.snapshots=0", "checkpoint.keep_every=2", "output.quiet=true"),
)
METRIC = "update/entropy"


def last(run: Path) -> float:
    return float(read_rows(run / "metrics.jsonl")[-1][METRIC])


# With fewer updates nothing collapses, and one round has no mean.
def test_the_change_that_removes_a_collapse_is_found(
    cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parent = tmp_path / "run"
    train.TRAIN.run([*COLLAPSING, f"output.cache={cache}", f"output.dir={parent}"])
    words = [str(parent), "round=1..2", "--last", "1", "--rate", "0.01", "--metric", METRIC]
    assert ATTRIBUTE.run(words, Console(quiet=False, is_terminal=False)) == 0
    shown = capsys.readouterr().out
    found = {line.partition("  ")[0]: line for line in shown.splitlines()}
    assert {"lag", "rate", "correction", "rows 0 to 3", "rows 4 to 7"} <= found.keys()
    forks = [tmp_path / "run-attribution" / f"rate-{round_}" for round_ in (1, 2)]
    mean = sum(last(fork) - last(parent) for fork in forks) / 2
    assert "removes it" in found["rate"] and f" {mean:+.4g} " in found["rate"]
    before = {fork: (fork / "manifest.json").stat().st_mtime_ns for fork in forks}
    ATTRIBUTE.run(words, Console(quiet=False, is_terminal=False))
    assert capsys.readouterr().out == shown
    assert before == {fork: (fork / "manifest.json").stat().st_mtime_ns for fork in forks}

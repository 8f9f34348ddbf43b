"""A finished run that version 0.1.0 recorded, read and gone on with by this one.

It was made by `rlhf-lab train debug=tiny task=arithmetic mode=free` with some options of former
names; its manifest has the overrides.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rlhf_lab.runs.folder import SCHEDULE, evals
from rlhf_lab.runs.jsonl import read_rows
from rlhf_lab.runs.summaries import list_runs
from rlhf_lab_analysis.sources.conditions import place_of
from rlhf_lab_analysis.sources.filters import is_chosen
from rlhf_lab_analysis.sources.folders import read_folder
from rlhf_lab_analysis.sources.record import look_up
from tests.support.examples import call

pytestmark = pytest.mark.usefixtures("costly")

RECORDED = Path(__file__).parents[1] / "data" / "run_of_0_1"
Command = Callable[..., int]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A copy that a test may change."""
    return Path(shutil.copytree(RECORDED, tmp_path / "runs" / "old"))


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """command("resume", run) -> the exit code, with stages in a folder of the test's own."""

    def start(name: str, *arguments: str) -> int:
        return call(name, *arguments, f"output.cache={tmp_path}/cache", monkeypatch=monkeypatch)

    return start


def test_it_is_listed_with_its_rounds_and_its_last_evaluation() -> None:
    (run,) = list_runs(RECORDED)
    assert (run.state, run.rounds, run.problem) == ("finished", 4, "")
    assert run.last_eval["version"] == 4


def test_its_timeline_is_drawn(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert call("timeline", str(run), monkeypatch=monkeypatch) == 0
    assert "trainer" in (run / "timeline.html").read_text(encoding="utf-8")


def test_its_condition_is_in_the_tables() -> None:
    (record,) = read_folder(RECORDED).records
    keys = ("mode.at_bound", "mode.when_stale", "mode.weights", "mode.extra_rounds")
    found = [look_up(record.config, key) for key in keys]
    assert found == ["drop", "drop", "latest_per_token", 2]
    assert place_of(record).condition == "online_dpo-free N=1 T=1 K=2 S=2"
    assert is_chosen(record, {"mode.weights": ["newest_in_sequence"]})
    assert record.findings == ()


def test_it_is_evaluated_again(
    run: Path, command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    again = ("evaluate", str(run), "eval.label=again", "eval.prompts=4")
    assert command(*again) == 2
    assert "--make-stages" in capsys.readouterr().err, "no cache has what it was made from"
    assert command(*again, "--make-stages") == 0
    assert len(evals(run)) == 2
    assert (run / "evals-again.jsonl").is_file()


def test_its_schedule_is_replayed(run: Path, command: Command, tmp_path: Path) -> None:
    again = tmp_path / "again"
    assert command("replay", str(run), f"output.dir={again}") == 0
    before, now = (read_rows(folder / SCHEDULE) for folder in (run, again))
    # Rows of that version have no steps.
    assert list(before) == [{k: v for k, v in row.items() if k != "steps"} for row in now]


def test_it_is_resumed_with_the_defaults_that_it_began_with(
    run: Path, command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    path = run / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"state": "stopped"}))
    assert command("resume", str(run)) == 2
    error = capsys.readouterr().err
    assert "sft.lr=0.003 (here 0.0), reward_model.lr=0.001 (here 0.0): " in error, "other defaults"
    assert command("resume", str(run), "sft.lr=0.003", "reward_model.lr=0.001") == 0

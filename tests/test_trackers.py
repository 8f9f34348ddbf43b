from __future__ import annotations

import importlib
import math
import sys
from pathlib import Path

import pytest

from rlhf_lab import runs
from rlhf_lab.trackers import console as console_module
from rlhf_lab.trackers.console import Console
from rlhf_lab.trackers.jsonl import JsonlTracker
from rlhf_lab.trackers.mirrors import mirrors
from rlhf_lab.trackers.options import TrackerOptions, WandbMode
from rlhf_lab.types import Metrics, UserError

ROW: Metrics = {"reward/mean": 0.625, "lag/updates_histogram": {"0": 4}, "note": "text"}


class FakeClock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_every_row_is_on_disk_before_the_next(tmp_path: Path) -> None:
    tracker = JsonlTracker(tmp_path / "metrics.jsonl")
    for step in range(3):
        tracker.log(ROW, step)
        assert runs.metrics(tmp_path)[-1] == {"step": step} | ROW
    tracker.close()
    assert len(runs.metrics(tmp_path)) == 3


def test_a_record_is_continued_and_never_overwritten(tmp_path: Path) -> None:
    for step in range(2):
        tracker = JsonlTracker(tmp_path / "metrics.jsonl")
        tracker.log({}, step)
        tracker.close()
    assert runs.metrics(tmp_path) == [{"step": 0}, {"step": 1}]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    ("wrap", "name"), [("plain", "update/loss"), ("nested", r"update/loss\.a\[1\]")]
)
def test_a_number_that_is_none_stops_the_run_by_its_name(
    tmp_path: Path, value: float, wrap: str, name: str
) -> None:
    tracker = JsonlTracker(tmp_path / "metrics.jsonl")
    bad = value if wrap == "plain" else {"a": [0.0, value]}
    with pytest.raises(ValueError, match=rf"metric {name} of step 4 is {value}"):
        tracker.log({"reward/mean": 0.5, "update/loss": bad}, 4)
    tracker.close()
    assert runs.metrics(tmp_path) == []


def test_no_mirror_is_opened_unless_asked_for(tmp_path: Path) -> None:
    assert mirrors(TrackerOptions(), tmp_path, {}) == []
    assert list(tmp_path.iterdir()) == []


def test_tensorboard_reads_back_the_numbers(tmp_path: Path) -> None:
    (tracker,) = mirrors(TrackerOptions(tensorboard=True), tmp_path, {})
    for step in range(3):
        tracker.log(ROW | {"round": step}, step)
    tracker.close()
    reader = importlib.import_module("tensorboard.backend.event_processing.event_accumulator")

    events = reader.EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert sorted(events.Tags()["scalars"]) == ["reward/mean", "round"]
    assert [(e.step, e.value) for e in events.Scalars("round")] == [(0, 0), (1, 1), (2, 2)]
    assert [e.value for e in events.Scalars("reward/mean")] == [0.625] * 3


def test_wandb_offline_keeps_metrics_config_and_group_in_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "my_sweep" / "my_run"
    folder.mkdir(parents=True)
    for name in ("WANDB_CONFIG_DIR", "WANDB_CACHE_DIR", "WANDB_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    options = TrackerOptions(wandb=WandbMode.offline, wandb_project="my_project")
    (tracker,) = mirrors(options, folder, {"algo": {"beta": 0.0375}})
    tracker.log(ROW, 0)
    tracker.close()
    (file,) = folder.glob("wandb/offline-run-*/run-*.wandb")
    kept = file.read_bytes()
    for text in (b"reward/mean", b"0.625", b"0.0375", b"my_project", b"my_sweep", b"my_run"):
        assert text in kept


@pytest.mark.parametrize(
    ("options", "hidden", "remedy"),
    [
        (TrackerOptions(wandb=WandbMode.offline), "wandb", r"pip install 'rlhf-lab\[wandb\]'"),
        (
            TrackerOptions(tensorboard=True),
            "torch.utils.tensorboard",
            r"pip install 'rlhf-lab\[tensorboard\]'",
        ),
    ],
)
def test_an_absent_package_is_named_with_its_remedy(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: TrackerOptions,
    hidden: str,
    remedy: str,
) -> None:
    monkeypatch.setitem(sys.modules, hidden, None)
    with pytest.raises(UserError, match=remedy):
        mirrors(options, tmp_path, {})


def test_wandb_online_without_login_is_refused_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import wandb

    def refuse(**_: object) -> None:
        raise wandb.errors.UsageError("No API key configured")

    monkeypatch.setattr(wandb, "init", refuse)
    with pytest.raises(UserError, match=r"No API key configured.*tracker=wandb_offline"):
        mirrors(TrackerOptions(wandb=WandbMode.online), tmp_path, {})


def test_outside_a_terminal_progress_is_a_few_plain_lines(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = FakeClock()
    with Console(quiet=False, is_terminal=False, clock=clock).stage("sft", total=400) as bar:
        for step in range(400):
            clock.now += 1.0
            bar.advance(1, loss=2.0 - step / 400)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 20
    assert lines[0] == "sft: 20/400, 20s gone, 6m20s left  loss 1.95"
    assert lines[-1] == "sft: 400/400, 6m40s gone  loss 1"


def test_a_quick_stage_is_one_line_and_a_slow_one_waits_for_five_percent(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = FakeClock()
    console = Console(quiet=False, is_terminal=False, clock=clock)
    with console.stage("quick", total=400) as bar:
        for _ in range(400):
            bar.advance(1)
    assert capsys.readouterr().out.splitlines() == ["quick: 400/400, 0s gone"]
    with console.stage("slow", total=4) as bar:
        for _ in range(4):
            clock.now += 1000.0
            bar.advance(1, reward=0.5, lag=1)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    assert lines[1] == "slow: 2/4, 33m20s gone, 33m20s left  reward 0.5  lag 1"
    assert lines[3].startswith("slow: 4/4, 1h06m gone  ")


def test_a_stage_that_fails_passes_the_error_on(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console(quiet=False, is_terminal=False)
    with pytest.raises(RuntimeError, match="boom"), console.stage("sft", total=2) as bar:
        bar.advance(1)
        raise RuntimeError("boom")
    assert capsys.readouterr().out == ""


def test_on_a_terminal_there_is_a_bar_with_counts_and_numbers(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERM", "xterm")
    console = Console(quiet=False, is_terminal=True)
    with console.stage("train [async]", total=2) as bar:
        console.say("above [the] bar")
        for _ in range(2):
            bar.advance(1, reward=0.5, wait=0.25)
    shown = capsys.readouterr().out
    for text in ("train [async]", "2/2", "reward 0.5  wait 0.25", "above [the] bar\n"):
        assert text in shown


@pytest.mark.parametrize("is_terminal", [True, False])
def test_quiet_says_nothing(is_terminal: bool, capsys: pytest.CaptureFixture[str]) -> None:
    console = Console(quiet=True, is_terminal=is_terminal)
    with console.stage("sft", total=1) as bar:
        bar.advance(1, loss=1.0)
    console.say("text")
    console.table("title", ["a"], [["b"]])
    assert capsys.readouterr().out == ""


def test_plain_tables_are_aligned_whole_and_a_line_per_row(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = [["[x]\n  y", "1"], ["z" * 200, "22"]]
    Console(quiet=False, is_terminal=False).table("Title", ["text", "n"], rows)
    title, head, first, second = capsys.readouterr().out.splitlines()
    assert title == "Title"
    assert head == "text" + " " * 198 + "n"
    assert first.split() == ["[x]", "y", "1"]
    assert second == "z" * 200 + "  22"


def test_terminal_tables_fold_and_lose_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    Console(quiet=False, is_terminal=True).table("Title", ["text", "n"], [["[z]" * 50, "22"]])
    assert capsys.readouterr().out.count("z") == 50


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0s"), (59.6, "1m00s"), (185, "3m05s"), (7620, "2h07m")]
)
def test_durations_are_short(seconds: float, text: str) -> None:
    assert console_module.seconds_text(seconds) == text


def test_rows_hold_only_what_json_has(tmp_path: Path) -> None:
    tracker = JsonlTracker(tmp_path / "metrics.jsonl")
    with pytest.raises(TypeError):
        tracker.log({"oops": object()}, 0)
    tracker.close()
    assert (tmp_path / "metrics.jsonl").read_text(encoding="utf-8") == ""

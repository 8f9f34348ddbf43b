from __future__ import annotations

import importlib
import math
import resource
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rlhf_lab.experiment.rules.checks import check
from rlhf_lab.runs import folder as runs
from rlhf_lab.runs.jsonl import JsonlFile, JsonlTracker, write_rows
from rlhf_lab.runs.row_digests import extent_of
from rlhf_lab.runs.trackers.mirrors import Mirror, TrackedRun, open_mirrors
from rlhf_lab.runs.trackers.options import Tracker, TrackerOptions, WandbMode
from rlhf_lab.runs.trackers.tensorboard import TensorBoardTracker
from rlhf_lab.types.data import Metrics
from rlhf_lab.types.errors import UserError
from tests.conftest import MakeConfig
from tests.support.fuzz_runs import sampled_at

ROW: Metrics = {"reward/mean": 0.625, "lag/updates_histogram": {"0": 4}, "note": "text"}


def test_every_row_is_on_disk_before_the_next(tmp_path: Path) -> None:
    tracker = JsonlTracker(JsonlFile(tmp_path / "metrics.jsonl"))
    for step in range(3):
        tracker.log(ROW, step)
        assert runs.metrics(tmp_path)[-1] == {"step": step} | ROW
    tracker.close()
    assert len(runs.metrics(tmp_path)) == 3


def test_a_record_is_continued_and_never_overwritten(tmp_path: Path) -> None:
    for step in range(2):
        tracker = JsonlTracker(JsonlFile(tmp_path / "metrics.jsonl"))
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
    tracker = JsonlTracker(JsonlFile(tmp_path / "metrics.jsonl"))
    bad = value if wrap == "plain" else {"a": [0.0, value]}
    with pytest.raises(ValueError, match=rf"metric {name} of step 4 is {value}"):
        tracker.log({"reward/mean": 0.5, "update/loss": bad}, 4)
    tracker.close()
    assert runs.metrics(tmp_path) == []


def opened(options: TrackerOptions, folder: Path, config: dict[str, object]) -> list[Mirror]:
    return open_mirrors(options, TrackedRun(folder, config, "r1"), start=0, warn=print)


class Broken(Tracker):
    """A tracker whose server is gone."""

    def log(self, metrics: Metrics, step: int) -> None:
        raise ConnectionError("unreachable")

    def close(self) -> None:
        raise ConnectionError("unreachable")


def test_a_mirror_that_fails_is_told_once_and_the_run_goes_on() -> None:
    said: list[str] = []
    mirror = Mirror("wandb", Broken(), 0, said.append)
    for step in range(3):
        mirror.log(ROW, step)
    mirror.close()
    (line,) = said
    assert "tracker wandb failed" in line and "unreachable" in line and "metrics.jsonl" in line


def test_a_mirror_skips_what_it_has_from_before_the_run_was_resumed() -> None:
    class Steps(Tracker):
        def __init__(self) -> None:
            self.seen: list[int] = []

        def log(self, metrics: Metrics, step: int) -> None:
            self.seen.append(step)

        def close(self) -> None:
            pass

    steps = Steps()
    mirror = Mirror("tensorboard", steps, 2, print)
    for step in range(4):
        mirror.log(ROW, step)
    assert steps.seen == [2, 3]


def test_a_row_that_finds_no_room_leaves_no_half_behind(tmp_path: Path) -> None:
    file = JsonlFile(tmp_path / "metrics.jsonl")
    file.append({"step": 0})
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        with pytest.raises(OSError, match="File too large") as caught:
            file.append({"step": 1, "text": "x" * 200})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
        file.close()
    assert "ends with the row before" in caught.value.__notes__[0]
    assert runs.metrics(tmp_path) == [{"step": 0}]
    assert not runs.metrics(tmp_path).is_cut


def removed(path: Path) -> None:
    path.unlink()


def replaced(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.write_text('{"step": 0}\n')


def lengthened(path: Path) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write('{"step": 77}\n')


def emptied(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("deed", [removed, replaced, lengthened, emptied])
def test_a_file_that_another_process_changes_is_noticed_and_no_written_row_is_mixed_with_its(
    tmp_path: Path, deed: Callable[[Path], None]
) -> None:
    path = tmp_path / "metrics.jsonl"
    write_rows(path, [{"step": 0}])
    file = JsonlFile(path)
    file.append({"step": 1})
    file.check()
    assert not file.change
    deed(path)
    file.append({"step": 2})
    file.append({"step": 3})
    file.close()
    assert file.change
    whole = tmp_path / "whole.jsonl"
    write_rows(whole, [{"step": step} for step in range(4)])
    assert file.extent() == extent_of(whole)
    if deed is emptied:
        assert file.place == path
    else:
        assert file.place.read_bytes() == whole.read_bytes()


def test_no_mirror_is_opened_unless_asked_for(tmp_path: Path) -> None:
    assert opened(TrackerOptions(), tmp_path, {}) == []
    assert list(tmp_path.iterdir()) == []


def events_of(path: Path) -> Any:
    reader = importlib.import_module("tensorboard.backend.event_processing.event_accumulator")
    events = reader.EventAccumulator(str(path))
    events.Reload()
    return events


def test_tensorboard_reads_back_the_numbers(tmp_path: Path) -> None:
    config = {"algo": {"part": "DPO", "beta": 0.25}, "output": {"dir": "secret"}}
    (tracker,) = opened(TrackerOptions(tensorboard=True), tmp_path, config)
    for step in range(3):
        tracker.log(ROW | {"round": step, "total/updates": 4 * step + 4}, step)
    tracker.close()
    events = events_of(tmp_path / "tensorboard")
    names = ["lag/updates_histogram.0", "reward/mean", "round", "total/updates"]
    assert sorted(events.Tags()["scalars"]) == names
    assert [(e.step, e.value) for e in events.Scalars("round")] == [(4, 0), (8, 1), (12, 2)]
    assert [e.value for e in events.Scalars("reward/mean")] == [0.625] * 3
    start = events.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    assert b"algo.beta" in start and b"secret" not in start


def test_tensorboard_without_a_ledger_counts_in_steps(tmp_path: Path) -> None:
    tracker = TensorBoardTracker(tmp_path)
    tracker.log({"loss": 0.5}, 7)
    tracker.close()
    assert [event.step for event in events_of(tmp_path).Scalars("loss")] == [7]


def test_tensorboard_shows_samples_as_they_are(tmp_path: Path) -> None:
    (tracker,) = opened(TrackerOptions(tensorboard=True), tmp_path, {})
    tracker.log_samples([replace(sampled_at(3), response="**b**\n<i>")])
    tracker.close()
    (event,) = events_of(tmp_path / "tensorboard").Tensors("sample/texts/text_summary")
    assert event.step == 3
    (text,) = event.tensor_proto.string_val
    assert b"    1 + 1 =\n\n    **b**\n    <i>" in text and b"lag 1 updates" in text


@pytest.mark.usefixtures("costly")
def test_wandb_offline_keeps_metrics_config_and_group_in_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "my_sweep" / "my_run"
    folder.mkdir(parents=True)
    for name in ("WANDB_CONFIG_DIR", "WANDB_CACHE_DIR", "WANDB_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    options = TrackerOptions(wandb=WandbMode.offline, wandb_project="my_project")
    (tracker,) = opened(options, folder, {"algo": {"beta": 0.0375}})
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
        opened(options, tmp_path, {})


def test_wandb_online_without_login_is_refused_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import wandb

    def refuse(**_: object) -> None:
        raise wandb.errors.UsageError("No API key configured")

    monkeypatch.setattr(wandb, "init", refuse)
    with pytest.raises(UserError, match=r"No API key configured.*tracker=wandb_offline"):
        opened(TrackerOptions(wandb=WandbMode.online), tmp_path, {})


def test_rows_hold_only_what_json_has(tmp_path: Path) -> None:
    tracker = JsonlTracker(JsonlFile(tmp_path / "metrics.jsonl"))
    with pytest.raises(TypeError):
        tracker.log({"oops": object()}, 0)
    tracker.close()
    assert (tmp_path / "metrics.jsonl").read_text(encoding="utf-8") == ""


@pytest.mark.parametrize(
    ("variable", "option", "remedy"),
    [
        ("", "offline", ""), ("offline", "offline", ""), ("dryrun", "offline", ""),
        ("run", "online", ""), ("disabled", "off", ""), ("offline", "online", "offline"),
        ("dryrun", "online", "offline"), ("online", "offline", "online"),
        ("disabled", "offline", "off"), ("shared", "online", "off"),
    ],
)  # fmt: skip
def test_another_mode_in_the_environment_of_wandb_is_named(
    variable: str, option: str, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "a" * 40)
    monkeypatch.setenv("WANDB_MODE", variable)
    options = TrackerOptions(wandb=WandbMode(option))
    if not remedy:
        options.require_usable("tracker")
        return
    with pytest.raises(UserError, match=f"WANDB_MODE={variable} .*pass tracker.wandb={remedy},"):
        options.require_usable("tracker")


@pytest.mark.parametrize("way", ["environment", "netrc"])
def test_wandb_without_a_key_is_refused_before_anything_is_made(
    way: str, config_of: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("WANDB_API_KEY", "WANDB_IDENTITY_TOKEN_FILE", "NETRC", "WANDB_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    config = config_of("tracker=wandb")
    with pytest.raises(UserError, match=r"tracker\.wandb=online.*tracker\.wandb=offline"):
        check(config)
    check(config_of("tracker=wandb", "tracker.wandb=offline"))
    if way == "environment":
        monkeypatch.setenv("WANDB_API_KEY", "a" * 40)
    else:
        login = "machine api.wandb.ai login user password " + "a" * 40
        (tmp_path / ".netrc").write_text(login, encoding="utf-8")
        (tmp_path / ".netrc").chmod(0o600)
    check(config)

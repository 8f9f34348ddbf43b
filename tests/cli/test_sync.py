"""`rlhf-lab sync`, by wandb's own command, to a server on this machine."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlhf_lab.cli import sync
from rlhf_lab.cli.sync import OFFLINE
from rlhf_lab.runs.processes import birth
from rlhf_lab.runs.provenance import provenance
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.runs.trackers.mirrors import TrackedRun, open_mirrors
from rlhf_lab.runs.trackers.options import TrackerOptions, WandbMode
from rlhf_lab.runs.trackers.wandb import FILES
from rlhf_lab.types.errors import StopRequested, UserError
from tests.support.wandb_server import WandbServer, serving

pytestmark = pytest.mark.usefixtures("costly")

KEY = "a" * 40


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WandbServer]:
    for name in ("WANDB_CONFIG_DIR", "WANDB_CACHE_DIR", "WANDB_DATA_DIR", "WANDB_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with serving() as state:
        monkeypatch.setenv("WANDB_BASE_URL", state.url)
        monkeypatch.setenv("WANDB_API_KEY", KEY)
        yield state


def write_manifest(folder: Path, run_id: str, state: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    manifest = {"state": state, "run_id": run_id, **provenance()}
    (folder / "manifest.json").write_text(json.dumps(manifest))


def write(folder: Path, run_id: str, steps: range, state: str = "finished") -> None:
    """What a run of these rounds leaves behind; again, for one that went on."""
    write_manifest(folder, run_id, state)
    options = TrackerOptions(wandb=WandbMode.offline)
    (tracker,) = open_mirrors(options, TrackedRun(folder, {}, run_id), steps.start, print)
    for step in range(steps.stop):
        tracker.log({"reward/mean": step / 8, "total/updates": 2 * step + 2}, step)
    tracker.close()


def write_no_file_of_wandb(folder: Path, state: str) -> None:
    """A run with a file that wandb could not read."""
    write_manifest(folder, folder.name, state)
    file = folder / FILES / OFFLINE.replace("*", "1")
    file.parent.mkdir(parents=True)
    file.write_bytes(b"no file of wandb's")


def call(*arguments: str | Path) -> int:
    return sync.SYNC.run([str(argument) for argument in arguments], Console(quiet=False))


# Three files by wandb itself, and two sendings by its own command.
def test_a_resumed_run_is_sent_in_order_and_only_once(
    tmp_path: Path, server: WandbServer, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "runs" / "cut"
    write(folder, "r1", range(0, 2), state="stopped")
    write(folder, "r1", range(2, 3))
    assert call(tmp_path / "runs", "--dry") == 0
    assert f"to be sent: {folder} (2 files)" in capsys.readouterr().out
    assert server.history == {}
    assert call(tmp_path / "runs") == 0
    assert "1 sent, 0 sent before, 0 still going on, 0 failed" in capsys.readouterr().out
    told = [(row["_step"], row["global_step"], row["reward/mean"]) for row in server.history["r1"]]
    assert told == [(0, 2, 0.0), (1, 4, 0.125), (2, 6, 0.25)]
    assert call(folder) == 0
    assert "0 sent, 1 sent before" in capsys.readouterr().out
    # A run that goes on after it was sent: its new rows follow the old ones.
    write(folder, "r1", range(3, 5))
    assert call(folder) == 0
    assert [row["_step"] for row in server.history["r1"]] == [0, 1, 2, 3, 4]


def test_one_that_fails_does_not_stop_the_others_and_a_running_one_is_left(
    tmp_path: Path, server: WandbServer, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "good", "good", range(0, 1))
    write_no_file_of_wandb(tmp_path / "bad", "finished")
    write_no_file_of_wandb(tmp_path / "now", "running")
    assert call(tmp_path) == 1
    said = capsys.readouterr().out
    assert set(server.history) == {"good"}
    assert f"1 still going on ({tmp_path / 'now'})" in said
    assert f"1 failed ({tmp_path / 'bad'})" in said
    assert KEY not in said


def test_without_a_key_it_says_how_to_log_in(
    tmp_path: Path, server: WandbServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_no_file_of_wandb(tmp_path / "run", "finished")
    monkeypatch.delenv("WANDB_API_KEY")
    with pytest.raises(UserError, match="wandb login"):
        call(tmp_path)
    assert server.history == {}


def test_bad_input_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="absent is no folder"):
        call(tmp_path / "absent")
    with pytest.raises(UserError, match="--all: rlhf-lab sync"):
        call(tmp_path, "--all")
    monkeypatch.setattr(sync, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install 'rlhf-lab\[wandb\]'"):
        call(tmp_path)


def test_a_folder_without_offline_runs_has_nothing_to_send(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(tmp_path) == 0
    assert "0 sent, 0 sent before" in capsys.readouterr().out


@pytest.mark.parametrize("is_mute", [False, True])
def test_a_server_that_does_not_answer_is_refused_before_anything_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_mute: bool
) -> None:
    """A port that refuses, and one that takes the request and says nothing."""
    write_no_file_of_wandb(tmp_path / "run", "finished")
    monkeypatch.setattr(sync, "ANSWER_SECONDS", 0.5)
    monkeypatch.setattr(sync, "send", lambda *_: pytest.fail("it was sent"))
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        if is_mute:
            place.listen()
        url = f"http://127.0.0.1:{place.getsockname()[1]}"
        monkeypatch.setenv("WANDB_BASE_URL", url)
        for words in ((tmp_path,), ("--report", "me/mine")):
            with pytest.raises(UserError, match=f"{url} does not answer .*nothing was sent"):
                call(*words)


@pytest.fixture
def hanging(tmp_path: Path, server: WandbServer, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file with the process number of a `wandb sync` that never ends."""
    file, program = tmp_path / "pid", tmp_path / "python"
    program.write_text(f"#!/bin/sh\necho $$ > {file}.new; mv {file}.new {file}; exec sleep 600\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    for name in ("one", "two"):
        write_no_file_of_wandb(tmp_path / "runs" / name, "finished")
    return file


def test_a_signal_ends_the_sending_too(tmp_path: Path, hanging: Path) -> None:
    def stop() -> None:
        deadline = time.monotonic() + 60
        while not hanging.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=stop)
    thread.start()
    with pytest.raises(StopRequested):
        call(tmp_path / "runs")
    thread.join()
    assert birth(int(hanging.read_text())) is None


def test_a_run_that_is_not_sent_in_time_does_not_stop_the_others(
    tmp_path: Path,
    hanging: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sync, "SEND_SECONDS", 0.5)
    assert call(tmp_path / "runs") == 1
    told = capsys.readouterr().out
    assert told.count("was ended") == 2 and "2 failed" in told

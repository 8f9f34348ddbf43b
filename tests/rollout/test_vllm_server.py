"""A server that a run starts, with another process in its place: its start, its end, its key, and
the files by which weights reach it."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest

from rlhf_lab.rollout.generators.options import Lengths
from rlhf_lab.rollout.generators.vllm import own_server, process
from rlhf_lab.rollout.generators.vllm import weights as weight_files
from rlhf_lab.rollout.generators.vllm.bearer import RequireKey
from rlhf_lab.rollout.generators.vllm.http import SERVER_KEY
from rlhf_lab.rollout.generators.vllm.options import VLLMSampling
from rlhf_lab.rollout.generators.vllm.own_server import lone_server, server_arguments
from rlhf_lab.rollout.generators.vllm.requests import EngineFailure
from rlhf_lab.rollout.generators.vllm.servers import Servers
from rlhf_lab.rollout.generators.vllm.weights import WeightFiles
from rlhf_lab.rollout.ports import free_port
from rlhf_lab.runs.child import last_lines
from rlhf_lab.types.errors import UserError
from tests.rollout.test_generators import tiny, weights
from tests.support.fake_serve import ACT
from tests.support.fake_server import FakeServer, serving

pytestmark = pytest.mark.usefixtures("costly")

LENGTHS = Lengths(prompt=8, response=8)


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """start(act, seconds): a backend over a process that does so."""
    monkeypatch.setattr(own_server, "SERVE", "tests.support.fake_serve")

    def started(act: str, seconds: float = 60.0) -> Any:
        monkeypatch.setenv(ACT, act)
        options = VLLMSampling(startup_seconds=seconds)
        return options.start_backend(tiny()[0], LENGTHS, tmp_path)

    return started


@pytest.mark.parametrize(
    ("act", "seconds", "complaint"),
    [
        ("end at once", 60.0, r"ended \(exit code 3\), while a server started at http"),
        ("be late", 1.0, r"was not ready after 1 s \(raise .*startup_seconds\), while a server"),
    ],
)
def test_a_server_that_does_not_start_shows_its_log(
    start: Any, act: str, seconds: float, complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def once_written(log: Path) -> str:
        """A process may start for longer than it has: its log is read when it has written."""
        until = time.monotonic() + 120
        while not log.read_text() and time.monotonic() < until:
            time.sleep(0.01)
        return last_lines(log)

    monkeypatch.setattr(process, "last_lines", once_written)
    with pytest.raises(EngineFailure, match=f"(?s){complaint}.*the log of one that is to {act}"):
        start(act, seconds)


def test_what_the_user_has_to_mend_is_no_failure(start: Any) -> None:
    with pytest.raises(UserError, match="num_heads=3"):
        start("refuse")


@pytest.mark.parametrize(
    ("act", "complaint"),
    [
        ("die while it loads", r"ended \(killed by SIGKILL\), while it loaded version 4"),
        ("load another", r"failed \(.*has version 7.*\), while it loaded version 4"),
        ("raise", r"failed \(.*refused \(500\).*\), while it loaded version 4"),
    ],
)
def test_a_server_of_the_run_lost_in_a_load_shows_its_log(
    start: Any, act: str, complaint: str
) -> None:
    backend = start(act)
    with pytest.raises(EngineFailure, match=rf"(?s){complaint}.*the log of one that is to {act}"):
        backend.load(weights(), "4")
    backend.close()
    left = weight_files.SHARED_MEMORY.glob(f"{weight_files.PREFIX}{os.getpid()}_*")
    assert not list(left)


def test_a_server_that_was_killed_takes_its_engine_with_it(start: Any) -> None:
    """The generator may end with this error, and close nothing."""
    backend = start("die while it loads")
    with pytest.raises(EngineFailure, match="SIGKILL"):
        backend.load(weights(), "4")
    until = time.monotonic() + 60
    with pytest.raises(ProcessLookupError):
        while time.monotonic() < until:
            os.killpg(backend.process.pid, 0)
            time.sleep(0.05)
    backend.close()


def test_a_server_of_the_run_ends_when_it_is_closed_and_leaves_nothing(start: Any) -> None:
    backend = start("wait")
    backend.load(weights(), "4")
    folder = backend.process.log.parent
    backend.close()
    assert not folder.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(backend.process.pid, 0)


def test_a_server_of_another_key_is_refused_with_the_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake = FakeServer(0)
    fake.key = "right"
    with serving(fake) as url:
        options = VLLMSampling(urls=[url])
        for key in ("", "wrong"):
            monkeypatch.setenv(SERVER_KEY, key)
            with pytest.raises(UserError, match=f"requires a key; set {SERVER_KEY}"):
                options.start_backend(tiny()[0], LENGTHS)
        monkeypatch.setenv(SERVER_KEY, "right")
        backend = options.start_backend(tiny()[0], LENGTHS)
        assert isinstance(backend, Servers)
        backend.load(weights(), "4")
        backend.close()
    assert fake.version == "4"


def test_a_server_that_other_machines_reach_needs_a_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(SERVER_KEY, raising=False)
    options = VLLMSampling(port=free_port(), host="0.0.0.0")
    with pytest.raises(UserError, match=rf"generator\.host=0\.0\.0\.0 .*set {SERVER_KEY}"):
        lone_server(options, tiny()[0], {}, tmp_path)
    monkeypatch.setenv(SERVER_KEY, "secret")
    words = lone_server(options, tiny()[0], {}, tmp_path).words
    assert words[words.index("--middleware") + 1] == own_server.DOOR
    assert "secret" not in words, "other users see the words of a process"
    assert "--middleware" not in server_arguments(tmp_path, {}, "127.0.0.1", 81, "nccl", "")


def answered(path: str, kind: str = "http", **headers: str) -> list[dict[str, Any]]:
    """What comes from an app behind the door."""
    sent: list[dict[str, Any]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "of the app"})

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    async def receive() -> None:
        raise AssertionError("nothing is read before the key is known")

    given = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": kind, "path": path, "headers": given}
    asyncio.run(RequireKey(app)(scope, receive, send))
    return sent


@pytest.mark.parametrize("path", ["/update_weights", "/pause", "/inference/v1/generate", "/v1/x"])
def test_only_a_request_with_the_key_passes_the_door(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SERVER_KEY, "right")
    passed = [{"type": "of the app"}]
    assert answered(path, Authorization="Bearer right") == passed
    for headers in ({}, {"Authorization": "right"}, {"Authorization": "Bearer right "}):
        assert answered(path, **headers)[0] == {
            "type": "http.response.start",
            "status": 401,
            "headers": [],
        }
    assert answered(path, kind="websocket") == [{"type": "websocket.close"}]
    assert answered("/health") == passed
    assert answered("", kind="lifespan") == passed


def test_a_door_without_a_key_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SERVER_KEY, raising=False)
    with pytest.raises(ValueError, match=f"set {SERVER_KEY}"):
        answered("/health")


def test_a_weight_file_is_there_while_it_is_needed(tmp_path: Path) -> None:
    files = WeightFiles(str(tmp_path))
    with files.written(weights(), "4") as path:
        assert Path(path).stat().st_size > 1000
    assert not list(tmp_path.iterdir())


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder in the place of shared memory."""
    folder = tmp_path / "shm"
    folder.mkdir()
    monkeypatch.setattr(weight_files, "SHARED_MEMORY", folder)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    return folder


def test_what_a_killed_process_left_is_removed_and_what_a_live_one_writes_is_not(
    memory: Path,
) -> None:
    """Numbers of processes are others in another container: a lock tells whether one lives."""
    left = [memory / f"{weight_files.PREFIX}{number}_abcd_123" for number in (os.getpid(), 2**22)]
    for folder in left:
        folder.mkdir()
        (folder / "4.safetensors").touch()
    starting = memory / f"{weight_files.PREFIX}7_abcdefgh"
    foreign = [memory / f"{weight_files.PREFIX}{name}" for name in ("x", "12", "7_x", "")]
    for folder in (starting, *foreign):
        folder.mkdir()
    (memory / f"{weight_files.PREFIX}7_afileabc").write_text("a file")
    with WeightFiles().written(weights(), "4") as path:
        assert not any(folder.exists() for folder in left)
        live = Path(path).parent
        assert live.parent == memory
        moved = live.rename(memory / f"{weight_files.PREFIX}{2**22}_abcd_123")
        WeightFiles()
        assert (moved / Path(path).name).stat().st_size > 1000
        moved.rename(live)
    assert starting.exists() and all(folder.exists() for folder in foreign)
    assert not live.exists()


def test_a_version_that_shared_memory_cannot_hold_is_written_elsewhere(
    memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(64, 0, 64))
    with WeightFiles().written(weights(), "4") as path:
        assert Path(path).parent.parent == memory.parent

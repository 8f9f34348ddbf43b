"""Children of the fork server are what a new process would be, and the server outlives signals."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rlhf_lab.runs import forkserver
from rlhf_lab.types.errors import UserError

pytestmark = [pytest.mark.usefixtures("processes"), pytest.mark.linux]


def test_tests_of_processes_stay_in_one_worker_file_by_file(request: pytest.FixtureRequest) -> None:
    if "PYTEST_XDIST_WORKER" not in os.environ:
        pytest.skip("there are no workers")
    assert request.node.nodeid.endswith("@test_forkserver"), "pytest-xdist does not fit this pytest"


# A program of its own: a server of its own, which imports next to nothing.
PROGRAM = """
import json, os, signal, sys, threading, time
from multiprocessing import parent_process
from rlhf_lab.runs import forkserver

forkserver.PRELOAD = ["rlhf_lab.runs.forkserver"]


def note(*facts):
    with open("facts", "a") as file:
        file.write(json.dumps(facts) + "\\n")


def server():
    return forkserver._server._forkserver_pid

"""


def play(tmp_path: Path, body: str, **environment: str) -> list[Any]:
    """What the program noted down, once it and all that it started have ended."""
    process = program(tmp_path, body, **environment)
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 0, out
    return facts(tmp_path)


def program(tmp_path: Path, body: str, **environment: str) -> subprocess.Popen[str]:
    """The program, with functions of the body in a module that children can import."""
    # The names of sockets must be short.
    temporary = short_folder(tmp_path)
    temporary.mkdir(exist_ok=True)
    (tmp_path / "acts.py").write_text(PROGRAM + body)
    (tmp_path / "main.py").write_text(
        "import acts\nacts.note('main', __name__)\nif __name__ == '__main__':\n    acts.play()\n"
    )
    return subprocess.Popen(
        [sys.executable, "main.py"],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(temporary), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.fixture(autouse=True)
def no_folder_stays(tmp_path: Path) -> Iterator[None]:
    yield
    shutil.rmtree(short_folder(tmp_path), ignore_errors=True)


def short_folder(tmp_path: Path) -> Path:
    """The test's folder for temporary files, beside that of all tests."""
    number = zlib.crc32(str(tmp_path).encode())
    return Path(tempfile.gettempdir()) / f"forkserver-{number:08x}"


def facts(tmp_path: Path) -> list[Any]:
    return [json.loads(line) for line in (tmp_path / "facts").read_text().splitlines()]


def test_a_child_has_the_surroundings_of_the_moment_it_is_started(tmp_path: Path) -> None:
    body = """
def child(word):
    os.write(1, b"out")
    note(word, os.environ.get("LATE"), "EARLY" in os.environ, os.path.basename(os.getcwd()))
    note(parent_process().pid, os.getppid() == parent_process().pid)
    note(open("/proc/self/comm").read())

def play():
    forkserver.warm()
    os.environ["LATE"] = "1"
    del os.environ["EARLY"]
    os.mkdir("below"); os.symlink("../facts", "below/facts"); os.chdir("below")
    sys.path.insert(0, "..")
    descriptor = os.open("output", os.O_WRONLY | os.O_CREAT)
    os.dup2(descriptor, 1)
    process = forkserver.start(child, ("word",), name="some", daemon=True)
    process.join()
    note(process.exitcode, process.name, os.getpid(), sys.modules["__main__"].__file__[-7:])
"""
    main, child, parents, comm, end = play(tmp_path, body, EARLY="1")
    assert main == ["main", "__main__"]  # and not again in the child
    assert child == ["word", "1", False, "below"]
    assert end[:2] == [0, "some"] and end[3] == "main.py"
    assert parents == [end[2], False]
    assert comm == ["some\n"]
    assert (tmp_path / "below" / "output").read_text() == "out"


def test_signals_to_everybody_do_not_end_the_server(tmp_path: Path) -> None:
    body = """
def child(ready):
    ready.set()
    time.sleep(600)

def play():
    # As in what a script starts in the background.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    forkserver.warm()
    for number in forkserver.GROUP_SIGNALS:  # while it begins
        os.kill(server(), number)
    first = server()
    import multiprocessing
    for number in forkserver.GROUP_SIGNALS:
        ready = multiprocessing.get_context("forkserver").Event()
        # A daemon, so that an error here is seen at once.
        process = forkserver.start(child, (ready,), daemon=True)
        assert ready.wait(60)
        os.kill(server(), number)
        os.kill(process.pid, number)
        process.join()
        note(process.exitcode)
    note(first == server())
"""
    *_, interrupted, terminated, hung_up, first, second, is_same = play(tmp_path, body)
    # A KeyboardInterrupt is an error as any other.
    assert interrupted == [1]
    assert [terminated, hung_up, first, second] == [
        [-number] for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
    ]
    assert is_same == [True]


def test_a_signal_that_comes_before_the_child_is_ready_for_it_is_not_lost(tmp_path: Path) -> None:
    body = """
class Slow:
    def __setstate__(self, state):
        note("unpickled")
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGUSR1)

    def __getstate__(self):
        return {"a": 1}

def child(slow):
    note("alive")

def play():
    for ignores_signals in (False, True):
        process = forkserver.start(child, (Slow(),), ignores_signals=ignores_signals)
        process.join()
        note(process.exitcode)
"""
    found = play(tmp_path, body)
    assert found[1] == ["unpickled"] and found[2][0] in (-signal.SIGTERM, -signal.SIGUSR1)
    assert found[3:] == [["unpickled"], ["alive"], [0]]


def test_what_a_child_starts_can_be_ended(tmp_path: Path) -> None:
    body = """
import subprocess

def child():
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    process.terminate()
    note(process.wait())

def play():
    forkserver.start(child).join()
"""
    assert play(tmp_path, body)[-1] == [-signal.SIGTERM]


def test_children_of_children_come_from_the_same_server(tmp_path: Path) -> None:
    body = """
def grandchild():
    note("grandchild", os.getppid(), parent_process().pid)

def child():
    note("child", os.getppid(), os.getpid())
    process = forkserver.start(grandchild)
    process.join()
    note(process.exitcode)

def play():
    forkserver.start(child).join()
    note("server", server())
"""
    _, child, grandchild, code, server = play(tmp_path, body)
    assert child[1] == grandchild[1] == server[1]
    assert grandchild[2] == child[2]
    assert code == [0]


def test_a_server_that_was_killed_is_started_anew(tmp_path: Path) -> None:
    body = """
def grandchild():
    note("grandchild")

def child():
    os.kill(os.getppid(), signal.SIGKILL)
    while os.getppid() == forkserver._server_pid:
        time.sleep(0.01)
    process = forkserver.start(grandchild)
    process.join()
    note(process.exitcode)

def play():
    process = forkserver.start(child)
    while len(open("facts").readlines()) < 3:
        time.sleep(0.01)
    process.join()
    process = forkserver.start(grandchild)
    process.join()
    note(process.exitcode)
"""
    assert play(tmp_path, body)[1:] == [["grandchild"], [0], ["grandchild"], [0]]


def test_threads_may_start_children_together(tmp_path: Path) -> None:
    body = """
def child():
    pass

def play():
    processes = []
    threads = [
        threading.Thread(target=lambda: processes.append(forkserver.start(child)))
        for _ in range(8)
    ]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    for process in processes: process.join()
    note([process.exitcode for process in processes], "__file__" in vars(sys.modules["__main__"]))
"""
    assert play(tmp_path, body) == [["main", "__main__"], [[0] * 8, True]]


def test_a_start_method_that_a_launcher_added_does_not_reach_children(tmp_path: Path) -> None:
    body = """
import multiprocessing.context

class Loky(type(multiprocessing.get_context("spawn"))):
    _name = "loky"

def child():
    import multiprocessing
    note(multiprocessing.get_start_method(allow_none=True))

def play():
    multiprocessing.context._concrete_contexts["loky"] = Loky()
    multiprocessing.set_start_method("loky", force=True)
    process = forkserver.start(child)
    process.join()
    note(process.exitcode)
"""
    assert play(tmp_path, body)[1:] == [[None], [0]]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_is_left_of_a_program_that_is_killed(
    tmp_path: Path, number: signal.Signals
) -> None:
    body = """
def child():
    parent_process().join()
    note("alone")

def play():
    process = forkserver.start(child)
    note("pids", server(), process.pid)
    time.sleep(600)
"""
    process = program(tmp_path, body)
    deadline = time.monotonic() + 120
    while not (tmp_path / "facts").exists() or len(facts(tmp_path)) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(number)
    # Until everybody who has its output has ended.
    process.communicate(timeout=120)
    assert facts(tmp_path)[-1] == ["alone"]
    assert not list(short_folder(tmp_path).iterdir())


def test_a_folder_too_long_for_sockets_is_refused_with_the_way_on(tmp_path: Path) -> None:
    longest = "/" + "x" * (forkserver.LONGEST_FOLDER - 1)
    forkserver.require_short_folder(longest)
    with pytest.raises(UserError, match=r"TMPDIR=/x+ is too long .* such as /tmp"):
        forkserver.require_short_folder(longest + "x")
    # With the names that multiprocessing gives, the longest one still fits.
    name = f"{longest}/pymp-12345678/listener-12345678"
    assert len(name) <= 107


def test_modules_of_the_working_folder_replace_none_of_pythons_own(tmp_path: Path) -> None:
    body = """
def child():
    import statistics
    note(os.environ.get("PYTHONSAFEPATH"), os.path.basename(os.getcwd()))

def play():
    os.mkdir("below"); os.symlink("../facts", "below/facts"); os.chdir("below")
    for name in ("queue", "random", "selectors", "statistics", "json", "copy"):
        with open(f"{name}.py", "w") as file:
            file.write("raise ImportError(__file__)")
    process = forkserver.start(child)
    process.join()
    note(process.exitcode, os.environ.get("PYTHONSAFEPATH"))
"""
    # For the user's own programs nothing is set.
    assert play(tmp_path, body) == [["main", "__main__"], [None, "below"], [0, None]]

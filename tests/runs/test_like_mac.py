"""What a Mac lacks of Linux changes nothing: programs that see macOS (tests/support/like_mac) have
the bits of Linux, save their state at Ctrl-C and leave no processes behind."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rlhf_lab.runs.processes import birth
from tests.conftest import Finished
from tests.rollout.test_survival import MODES, SIMULATED, UNJUDGED
from tests.support.survival import descendants, outcome, wait_until
from tests.support.variants import variants

pytestmark = [pytest.mark.usefixtures("processes"), pytest.mark.linux]

ROOT = Path(__file__).parents[2]
LIMIT = 300
MODULE = """
import json, os, signal, socket, subprocess, sys, time
from pathlib import Path
from rlhf_lab.runs import child, forkserver, kernels, memory, processes, provenance


def show(*facts):
    print(json.dumps(facts), flush=True)

"""


def environment(**more: str) -> dict[str, str]:
    paths = [str(ROOT / "tests/support/like_mac"), str(ROOT), *filter(None, sys.path)]
    return {**os.environ, "LIKE_MAC": "1", "PYTHONPATH": os.pathsep.join(paths), **more}


def program(folder: Path, body: str, **more: str) -> subprocess.Popen[str]:
    """Functions of a module, the last of which is `play`, as a program on a Mac."""
    (folder / "acts.py").write_text(MODULE + body)
    return subprocess.Popen(
        [sys.executable, "-c", "import acts; acts.play()"],
        cwd=folder,
        env=environment(**more),
        stdout=subprocess.PIPE,
        text=True,
    )


def shown(folder: Path, body: str, **more: str) -> list[Any]:
    """What a program showed on its output until it ended."""
    process = program(folder, body, **more)
    out, _ = process.communicate(timeout=LIMIT)
    assert process.returncode == 0
    return [json.loads(line) for line in out.splitlines()]


def test_births_and_children_are_known_and_processes_can_be_ended(tmp_path: Path) -> None:
    body = """
def play():
    show(sys.platform, processes.sys.platform, Path("/proc").exists(), hasattr(os, "waitid"))
    asleep = subprocess.Popen(["sleep", "600"])
    born = processes.birth(asleep.pid)
    show(born is not None, born == processes.birth(asleep.pid))
    show(processes.children(os.getpid()) == [asleep.pid], processes.children(asleep.pid))
    show(child.end_process(asleep.pid, 60.0), processes.birth(asleep.pid))
    show(asleep.wait(), processes.birth(asleep.pid), child.end_process(asleep.pid, 60.0))
    stubborn = subprocess.Popen(["sh", "-c", "trap '' TERM; echo; sleep 600 & wait; wait"],
        stdout=subprocess.PIPE, start_new_session=True)
    stubborn.stdout.readline()
    show(child.end_process(stubborn.pid, 0.5), stubborn.wait())
"""
    assert shown(tmp_path, body) == [
        ["linux", "darwin", False, False],
        [True, True],
        [True, []],
        [True, None],
        [-signal.SIGTERM, None, True],
        [False, -signal.SIGKILL],
    ]


def test_a_child_is_spawned_with_the_surroundings_of_its_parent(tmp_path: Path) -> None:
    body = """
def work(word):
    os.write(1, b'["by number"]\\n')
    show(word, os.environ["LATE"], os.path.basename(os.getcwd()))
    show(signal.getsignal(signal.SIGTERM) == signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTERM)

def ignore(word):
    for number in child.GROUP_SIGNALS:
        os.kill(os.getpid(), number)
    show(word)

def play():
    forkserver.warm()
    os.environ["LATE"] = "1"
    os.mkdir("below"); sys.path.insert(0, os.getcwd()); os.chdir("below")
    one = forkserver.start(work, ("word",), name="some", daemon=True)
    one.join()
    two = forkserver.start(ignore, ("ignored",), ignores_signals=True)
    os.kill(two.pid, signal.SIGTERM)
    two.join()
    show(one.exitcode, two.exitcode, forkserver._server._forkserver_pid)
"""
    assert shown(tmp_path, body) == [
        ["by number"],
        ["word", "1", "below"],
        [True],
        ["ignored"],
        [-signal.SIGTERM, 0, None],
    ]


def test_a_child_in_a_call_without_end_dies_with_its_parent(tmp_path: Path) -> None:
    body = """
SPIN = '''
import os, sys
from rlhf_lab.runs.processes import die_with
die_with(int(sys.argv[1]))
print(flush=True)
while True:
    pass
'''

def play():
    words = [sys.executable, "-c", SPIN, str(os.getpid())]
    spinning = subprocess.Popen(words, stdout=subprocess.PIPE)
    spinning.stdout.readline()
    show(spinning.pid)
    time.sleep(600)
"""
    parent = program(tmp_path, body)
    with parent:
        assert parent.stdout is not None
        (pid,) = json.loads(parent.stdout.readline())
        born = birth(pid)
        assert born is not None
        parent.kill()
    wait_until(lambda: birth(pid) != born)


def test_a_mac_with_another_name_is_no_other_machine(tmp_path: Path) -> None:
    body = """
def play():
    host = {"name": socket.gethostname(), "platform": provenance.platform.platform()}
    here = {"host": host, "process": provenance.process()}
    renamed = here | {"host": here["host"] | {"name": "mac-2.local"}}
    ended = renamed | {"process": here["process"] | {"born": "Mon Nov 30 00:00:00 2020"}}
    before = renamed | {"process": here["process"] | {"boot": "22222222"}}
    linux = renamed | {"host": renamed["host"] | {"platform": "Linux-6"}}
    show(*map(provenance.is_alive, (here, renamed, ended, before, linux)))
    show(*map(provenance.is_this_host, (here, renamed, before)))
    show(kernels.processor(), provenance.usable_cores() == os.cpu_count())
    show(memory.keep_freed_memory(), memory.resident_bytes(memory.resource.RUSAGE_SELF) > 2**22)
"""
    assert shown(tmp_path, body) == [
        [True, True, False, False, True],
        [True, True, False],
        ["Apple M1", True],
        [False, True],
    ]


@pytest.mark.parametrize(("length", "is_refused"), [(71, False), (72, True)])
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_folder_that_is_too_long_for_sockets_is_refused(
    tmp_path: Path, length: int, is_refused: bool, method: str
) -> None:
    body = """
def work():
    show("worked")

def play():
    try:
        forkserver.PRELOAD = ["rlhf_lab.runs.forkserver"]
        forkserver.start(work).join()
    except Exception as error:
        show(type(error).__name__, f"{os.environ['TMPDIR']} is too long" in str(error))
"""
    with tempfile.TemporaryDirectory(prefix="mac-", dir="/tmp") as folder:
        long = Path(folder) / ("x" * (length - len(folder) - 1))
        long.mkdir()
        found = shown(tmp_path, body, TMPDIR=str(long), RLHF_LAB_START=method)
    assert found == ([["UserError", True]] if is_refused else [["worked"]])


def lab(*words: str, cwd: Path, **more: str) -> subprocess.Popen[str]:
    """The command in a new session, as a terminal starts it, with as many descriptors as on a
    Mac."""

    def as_on_a_mac() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
        signal.signal(signal.SIGINT, signal.default_int_handler)

    with (cwd / "log").open("w") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "rlhf_lab.cli.main", *words],
            cwd=cwd,
            env=environment(**more),
            stdout=log,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            preexec_fn=as_on_a_mac,
        )


def completed(process: subprocess.Popen[str], cwd: Path) -> None:
    code = process.wait(LIMIT)
    assert code == 0, (cwd / "log").read_text()


def rows_in(folder: Path) -> list[int]:
    """Rows of metrics of each run below a folder."""
    return [len(path.read_bytes().splitlines()) for path in sorted(folder.rglob("metrics.jsonl"))]


SHORT = ("run.updates=4", "eval=none", "eval.snapshots=0", "sft.steps=4", "reward=task_rule")
# In the first one: a spawned generator, memory by names, a save and 256 descriptors.
RUNS = {
    "one process": ((*SHORT, "mode=async"), (*SHORT, "mode=async", "mode.executor=inline")),
    **{
        mode: ((*UNJUDGED, *MODES[mode]), (*UNJUDGED, *SIMULATED.get(mode, MODES[mode])))
        for mode in ("sync", "lagged", "thread", "process", "partial")
    },
}


@pytest.mark.parametrize("run", variants(RUNS, ("one process",)))
def test_a_run_has_the_bits_of_linux(
    cache: Path, finished: Finished, tmp_path: Path, run: tuple[Sequence[str], Sequence[str]]
) -> None:
    """Two processes import torch; `make test` has this kind once."""
    here, simulated = run
    words = ("debug=tiny", f"output.cache={cache}", "output.dir=run", *here)
    completed(lab("train", *words, cwd=tmp_path), tmp_path)
    assert outcome(tmp_path / "run") == finished(*simulated)


@contextmanager
def at_work(process: subprocess.Popen[str], runs: Path, num: int, cwd: Path) -> Iterator[set[int]]:
    """The processes of a command, when so many runs have written rows."""
    try:
        wait_until(lambda: process.poll() is not None or len(rows_in(runs)) >= num, LIMIT)
        wait_until(lambda: process.poll() is not None or min(rows_in(runs)) > 1, LIMIT)
        assert process.poll() is None, (cwd / "log").read_text()
        yield {process.pid, *descendants(process.pid)}
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.mark.slow
def test_a_killed_run_leaves_no_process_and_is_resumed_in_another_network(
    cache: Path, finished: Finished, tmp_path: Path
) -> None:
    words = ("debug=tiny", f"output.cache={cache}", "output.dir=run", *UNJUDGED, "run.updates=200")
    mode, run = MODES["process"], tmp_path / "run"
    process = lab("train", *words, *mode, cwd=tmp_path)
    with at_work(process, run, 1, tmp_path) as members:
        born = {pid: birth(pid) for pid in members}
        process.kill()
        process.wait()
    wait_until(lambda: not any(birth(pid) == born[pid] is not None for pid in members), LIMIT)
    manifest = json.loads((run / "manifest.json").read_text())
    assert manifest["state"] == "running"
    manifest["host"]["name"] = "mac-2.local"
    (run / "manifest.json").write_text(json.dumps(manifest))
    completed(lab("resume", "run", cwd=tmp_path), tmp_path)
    simulated = SIMULATED["process"]
    assert outcome(run) == finished(*UNJUDGED, "run.updates=200", *simulated)


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["local", "joblib"])
def test_ctrl_c_at_a_sweep_saves_the_state_of_its_jobs(
    cache: Path, tmp_path: Path, launcher: str
) -> None:
    is_joblib = launcher == "joblib"
    words = [
        *("train", "-m", "debug=tiny", f"output.cache={cache}", "output.root=runs", *UNJUDGED),
        *("mode=sync", "seed=1,2", f"launcher={launcher}", "run.updates=100000"),
        *(["hydra.launcher.n_jobs=2"] if is_joblib else []),
    ]
    process = lab(*words, cwd=tmp_path)
    runs = tmp_path / "runs"
    with at_work(process, runs, 2 if is_joblib else 1, tmp_path) as members:
        born = {pid: birth(pid) for pid in members}
        os.killpg(process.pid, signal.SIGINT)
        process.wait(LIMIT)
    wait_until(lambda: not any(birth(pid) == born[pid] is not None for pid in members), LIMIT)
    manifests = [json.loads(path.read_text()) for path in runs.rglob("manifest.json")]
    assert manifests and {manifest["state"] for manifest in manifests} == {"stopped"}
    for folder in (path.parent for path in runs.rglob("manifest.json")):
        assert list((folder / "checkpoints").iterdir())

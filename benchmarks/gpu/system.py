"""Section 9: what differs between Linux and macOS. Children by each start method, digests of both,
a sweep that gets Ctrl-C, and threads by how long they spin."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.gpu.bits import ASYNC, BASE, equal, lines
from benchmarks.gpu.findings import Finding, Setting, info, judged
from benchmarks.gpu.programs import digest, training
from rlhf_lab.runs import forkserver
from rlhf_lab.runs.folder import MANIFEST, METRICS
from rlhf_lab.runs.manifest import read_manifest
from rlhf_lab.runs.provenance import usable_cores

METHODS = ("spawn", "forkserver")
# A child that touches what Apple's libraries do not allow after a fork: hangs have a limit.
STARTS = """
import tempfile, time
from rlhf_lab.runs import forkserver

def work():
    import torch
    torch.manual_seed(0)
    with tempfile.TemporaryFile() as file:
        torch.save(torch.zeros(2), file)

def play(number):
    begin, codes = time.monotonic(), []
    for _ in range(number):
        child = forkserver.start(work)
        child.join(120)
        codes.append(child.exitcode)
        child.kill()
    print(codes.count(0), (time.monotonic() - begin) / number)
"""
OPERATIONS = """
import time
import torch
matrix, begin = torch.randn(256, 256), time.perf_counter()
for number in range(2000):
    matrix = torch.tanh(matrix @ matrix)
print(time.perf_counter() - begin)
"""
BLOCKTIMES = ("200", "1", "0")
PATIENCE = 600.0


def measure(setting: Setting) -> Iterator[Finding]:
    folder = Path(setting.scratch, "system")
    folder.mkdir(parents=True, exist_ok=True)
    yield info("platform", sys.platform)
    yield info("start method", forkserver.method())
    yield from starts(folder, 3 if setting.is_small else 20)
    yield from methods(folder, setting)
    yield from interrupted(folder, setting)
    for blocktime in BLOCKTIMES:
        words = [sys.executable, "-c", OPERATIONS]
        seconds = float(output(words, KMP_BLOCKTIME=blocktime, OMP_NUM_THREADS=str(usable_cores())))
        yield info(f"2,000 products with KMP_BLOCKTIME={blocktime}", seconds, "s")


def starts(folder: Path, number: int) -> Iterator[Finding]:
    """How many children end well, and seconds of one. A method that is not this system's own may
    fail."""
    (folder / "starts.py").write_text(STARTS, encoding="utf-8")
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    for method in METHODS:
        words = [sys.executable, "-c", f"import starts; starts.play({number})"]
        found = output(words, RLHF_LAB_START=method, PYTHONPATH=path).split() or ["0", "nan"]
        whole, seconds = int(found[0]), float(found[1])
        name, expected = f"{method}: children that end well", f"{number} of {number}"
        if method == forkserver.method():
            yield judged(name, whole, whole == number, expected=expected)
        else:
            yield info(name, whole, expected=expected)
        yield info(f"{method}: a child", seconds, "s")


def output(words: Sequence[str], **environment: str) -> str:
    """What a program prints; nothing if it fails or does not end."""
    try:
        done = subprocess.run(
            words,
            env=os.environ | environment,
            stdout=subprocess.PIPE,
            text=True,
            timeout=PATIENCE,
        )
    except subprocess.TimeoutExpired:
        return ""
    return done.stdout if done.returncode == 0 else ""


def methods(folder: Path, setting: Setting) -> Iterator[Finding]:
    """The weights of one asynchronous run, by both methods."""
    found = {}
    for method in METHODS:
        words = training(folder / method, (*BASE, *ASYNC), setting)
        done = subprocess.run(words, env=os.environ | {forkserver.SWITCH: method})
        found[method] = digest(folder / method) if done.returncode == 0 else "failed"
        yield info(f"{method}: digest of an asynchronous run", found[method][:16])
    yield equal("spawn = forkserver", len(set(found.values())) == 1)


def interrupted(folder: Path, setting: Setting) -> Iterator[Finding]:
    """Ctrl-C at a sweep, in its first job."""
    root = folder / "sweep"
    words = training(root, (*BASE, "mode=sync", "run.updates=100000", "seed=1,2"), setting)
    words = [word for word in words if not word.startswith("output.dir=")]
    words.insert(words.index("train") + 1, "-m")
    words += [f"output.root={root}", "launcher=local"]
    child = subprocess.Popen(words, start_new_session=True)
    end = time.monotonic() + PATIENCE
    while child.poll() is None and time.monotonic() < end and rows(root) < 2:
        time.sleep(0.05)
    begin = time.monotonic()
    child.send_signal(signal.SIGINT)
    try:
        child.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
    yield info("a sweep after Ctrl-C", time.monotonic() - begin, "s")
    states = Counter(str(read_manifest(path)["state"]) for path in root.rglob(MANIFEST))
    text = ", ".join(f"{number} {state}" for state, number in sorted(states.items())) or "none"
    yield judged("states of its jobs", text, text == "1 stopped", expected="1 stopped")


def rows(root: Path) -> int:
    return sum(map(lines, root.rglob(METRICS)))

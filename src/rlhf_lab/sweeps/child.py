"""The process of a sweep's job: a job that is killed, or fills its memory, harms no other job."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from collections.abc import Sequence
from multiprocessing import parent_process
from multiprocessing.process import BaseProcess
from pathlib import Path

from rlhf_lab.runs import forkserver
from rlhf_lab.runs.child import when_ended

# The module of the console script; a job is what a person would type.
DOOR = "rlhf_lab.cli.main"
# Libraries read these once, when they are loaded.
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def start(words: Sequence[str], log: Path, threads: int, script: str = "") -> BaseProcess:
    """`rlhf-lab WORDS`, or a bash script instead, in a session of its own, writing to a log, with
    so many threads."""
    pin(threads)
    log.parent.mkdir(parents=True, exist_ok=True)
    return forkserver.start(live, (tuple(words), str(log), script, threads), name="rlhf-lab")


def pin(threads: int) -> None:
    """Set the threads of libraries that are still to be loaded, here and in children, where the
    environment sets none. A variable that is set to nothing sets none."""
    for name in THREADS:
        os.environ[name] = os.environ.get(name) or str(threads)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


def live(words: tuple[str, ...], log: str, script: str, threads: int) -> None:
    """Run the command in the child, whose exit code is that of the command."""
    # The server may have been started with another number.
    pin(threads)
    # Ctrl-C is for the sweep, which then sends SIGTERM to its jobs.
    os.setsid()
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    os.close(descriptor)
    if script:
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        os.execvpe("bash", ["bash", "-c", script], {**os.environ, "PATH": path})
    sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
    parent = parent_process()
    assert parent is not None, "a child has a parent"
    # It saves its state and ends.
    when_ended(parent.sentinel, lambda: os.kill(os.getpid(), signal.SIGTERM))
    sys.argv = ["rlhf-lab", *words]
    code: int = importlib.import_module(DOOR).main()
    sys.stdout.flush()
    sys.exit(code)


def end(process: BaseProcess) -> None:
    """Have a child save its state, and wait until it has ended."""
    if process.is_alive() and process.pid is not None:
        os.kill(process.pid, signal.SIGTERM)
    process.join()

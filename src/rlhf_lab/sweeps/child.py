"""A job as a process of its own: what kills one job, or fills its memory, kills no other."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
from collections.abc import Sequence
from multiprocessing import parent_process
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from rlhf_lab.runs import forkserver

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
    """Tell libraries that are still to be loaded, here and in children, how many threads to use."""
    for name in THREADS:
        os.environ.setdefault(name, str(threads))
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


def live(words: tuple[str, ...], log: str, script: str, threads: int) -> None:
    """The life of the child; ends with the exit code of the command."""
    # The server may have been started before anybody said so.
    pin(threads)
    # Ctrl-C is for the sweep, which then asks its jobs to save their state.
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
    threading.Thread(target=end_with_parent, daemon=True).start()
    sys.argv = ["rlhf-lab", *words]
    code: int = importlib.import_module(DOOR).main()
    sys.stdout.flush()
    sys.exit(code)


def end_with_parent() -> None:
    """Ask this process to save its state and end when the one that started it is gone."""
    parent = parent_process()
    assert parent is not None, "a child has a parent"
    wait([parent.sentinel])
    os.kill(os.getpid(), signal.SIGTERM)


def end(process: BaseProcess) -> None:
    """Ask a child to save its state and end, and wait until it has."""
    if process.is_alive() and process.pid is not None:
        os.kill(process.pid, signal.SIGTERM)
    process.join()

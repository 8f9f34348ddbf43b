"""A process with vLLM in it: started, listened to, and ended with its whole family."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path

from rlhf_lab.rollout.generators.vllm.family import FOLDER
from rlhf_lab.rollout.generators.vllm.options import VLLMSampling
from rlhf_lab.rollout.generators.vllm.requests import EngineFailure

POLL_SECONDS = 0.25
TAIL_LINES = 30
END_SECONDS = 10.0
LATE = "raise generator.startup_seconds"


class Child:
    """`python -m module <descriptor> arguments`, with a pipe by which it notices that we are gone.

    Its output goes to a log in `folder`, whose end is part of every complaint about it. The folder
    goes when the child is closed, unless it has failed.
    """

    def __init__(
        self, folder: Path, module: str, arguments: Sequence[str], environment: Mapping[str, str]
    ) -> None:
        self._folder = folder
        self.log = folder / "vllm.log"
        ours, theirs = socket.socketpair()
        with self.log.open("wb") as log, theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, str(theirs.fileno()), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # What vLLM leaves in its temporary folder goes with ours.
                env=os.environ | {**environment, "TMPDIR": str(folder), FOLDER: str(folder)},
                pass_fds=[theirs.fileno()],
                # Signals of a terminal reach the trainer alone, and the family can be ended as one.
                start_new_session=True,
            )
        self.connection = Connection(ours.detach())
        self._has_failed = False

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_for(
        self, is_done: Callable[[], bool], doing: str, seconds: float, remedy: str
    ) -> None:
        """Look until it is done. Raises EngineFailure if the process ends before, or is late."""
        deadline = time.monotonic() + seconds
        while not is_done():
            if self._process.poll() is not None:
                raise self.failure(doing)
            if time.monotonic() > deadline:
                raise self.failure(doing, f"was not ready after {seconds:g} s ({remedy})")
            time.sleep(POLL_SECONDS)

    def failure(self, doing: str, complaint: str = "") -> EngineFailure:
        """What to raise: how it ended, and what its log says last. The log stays where it is."""
        self._has_failed = True
        if not complaint:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(END_SECONDS)
            complaint = f"ended ({ending(self._process.poll())})"
        return EngineFailure(
            f"vLLM (pid {self.pid}) {complaint}, {doing}; its log {self.log} ends with:\n"
            f"{tail(self.log)}"
        )

    def close(self) -> None:
        """End it and whatever it started, at once."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        with contextlib.suppress(OSError):
            self.connection.close()
        if not self._has_failed:
            shutil.rmtree(self._folder, ignore_errors=True)


def ending(code: int | None) -> str:
    """An exit code in words."""
    if code is None:
        return "it closed its pipe"
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def tail(log: Path) -> str:
    """The last lines of a log."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return "\n".join(lines[-TAIL_LINES:]) or "(nothing)"


def environment(options: VLLMSampling, has_gpu: bool) -> dict[str, str]:
    """What vLLM reads from its environment; what the user has set there himself goes first."""
    wanted = {
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CPU_KVCACHE_SPACE": str(options.kv_cache_gb),
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "TOKENIZERS_PARALLELISM": "false",
    }
    if options.enforce_eager and not has_gpu:
        # Eager or not, vLLM compiles a small function on first use, which takes 20 s on a CPU.
        wanted["TORCHDYNAMO_DISABLE"] = "1"
    # Children find the package where we found it.
    path = os.pathsep.join(entry for entry in sys.path if entry)
    return {
        **{key: os.environ.get(key, value) for key, value in wanted.items()},
        "OMP_NUM_THREADS": str(options.threads),
        "PYTHONPATH": path,
    }

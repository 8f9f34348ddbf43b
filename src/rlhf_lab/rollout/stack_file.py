"""A file through which the trainer sees where a generator's threads are, and what crashed it."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import tempfile
import time
from pathlib import Path

ANSWER_SECONDS = 0.5
# What faulthandler writes at a crash.
CRASHED = "Fatal Python error:"
CRASH_LINES = 12


class StackFile:
    """The trainer's side: a temporary file, whose name the generator removes once it has it open.

    No file is left behind then, whichever of the two is killed.
    """

    def __init__(self) -> None:
        descriptor, name = tempfile.mkstemp(prefix="rlhf_lab_generator_")
        self._file = os.fdopen(descriptor, encoding="utf-8", errors="replace")
        self.path = Path(name)

    def current(self, pid: int) -> str:
        """The stacks of all threads at this moment."""
        self._file.seek(0, os.SEEK_END)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGUSR2)
        time.sleep(ANSWER_SECONDS)
        text = self._file.read().strip()
        return text or "no traceback: the process does not answer signals (is it stopped?)"

    def crash(self) -> str:
        """The stack of the crash that ended the process; "" if it did not crash."""
        with contextlib.suppress(OSError, ValueError):  # another thread has closed the file
            self._file.seek(0)
            _, mark, stack = self._file.read().rpartition(CRASHED)
            return "\n".join(["", *(mark + stack).splitlines()[:CRASH_LINES]]) if mark else ""
        return ""

    def close(self) -> None:
        self._file.close()
        self.path.unlink(missing_ok=True)


def write_stacks(path: Path) -> None:
    """The generator's side: write the stacks at SIGUSR2 and at a crash, as long as it lives."""
    file = path.open("w", encoding="utf-8")
    path.unlink()
    faulthandler.register(signal.SIGUSR2, file=file, all_threads=True, chain=False)
    faulthandler.enable(file=file, all_threads=False)

"""Child processes: start, exit code in words, end with escalation.

`Child` starts a program; `forkserver.start` starts a function in a process that has everything
imported. What follows `Child` here, and `child_side`, serve both. The two modules import the
standard library only: the child of a reward's time limit must start in a moment.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from multiprocessing import Pipe
from pathlib import Path

# In the words of a command: the number of the child's end of the pipe.
PIPE = "{pipe}"
POLL_SECONDS = 0.2
TAIL_LINES = 30


class RemoteTraceback(Exception):
    """The text of a child's traceback, as the cause of the error that the child sent."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class Child:
    """A program with a pipe to it, which `close` ends.

    words: the command, with PIPE where the program expects its end of the pipe. log: a file for its
    output, instead of the parent's own. is_session: it leads a session, so that signals of the
    terminal do not reach it, and ends together with all processes that it started.
    """

    def __init__(
        self,
        words: Sequence[str],
        log: Path | None = None,
        environment: Mapping[str, str] | None = None,
        is_session: bool = True,
    ) -> None:
        self.log = log
        self._is_session = is_session
        self.connection, theirs = Pipe()
        with theirs, contextlib.ExitStack() as stack:
            output = stack.enter_context(log.open("wb")) if log else None
            descriptor = theirs.fileno()
            self._process = subprocess.Popen(
                [str(descriptor) if word == PIPE else word for word in words],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=None if environment is None else os.environ | environment,
                pass_fds=[descriptor] if PIPE in words else (),
                start_new_session=is_session,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; the negative number of the signal that killed it."""
        return self._process.poll()

    def wait(self, seconds: float) -> int | None:
        """The exit code, if it ends within so many seconds."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(seconds)
        return None

    def stop(self, seconds: float) -> None:
        """SIGTERM, so that it saves its state, and after `seconds` SIGKILL."""
        if self.exit_code is None:
            self._signal(signal.SIGTERM)
            self.wait(seconds)
        self.close()

    def close(self) -> None:
        """SIGKILL, unless it has ended, and no zombie and no open pipe remain."""
        self._signal(signal.SIGKILL)
        self._process.wait()
        with contextlib.suppress(OSError):
            self.connection.close()

    def _signal(self, number: int) -> None:
        if not self._is_session:
            self._process.send_signal(number)
            return
        # Others of its session may run when it has ended.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)


def exit_text(code: int | None) -> str:
    """An exit code in words."""
    if code is None:
        return "still running"
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def last_lines(log: Path, number: int = TAIL_LINES) -> str:
    """The end of a log."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return "\n".join(lines[-number:]) or "(nothing)"


def birth(pid: int) -> str | None:
    """When a process started, in the kernel's ticks; None if it ended or there is no /proc.

    A pid alone may have passed to another process since.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The command's name, in parentheses, may itself hold spaces and parentheses.
    after_name = text.rpartition(")")[2].split()
    return None if after_name[0] == "Z" else after_name[19]


def end_process(pid: int, seconds: float) -> bool:
    """SIGTERM, and after `seconds` SIGKILL to the process group. Returns whether the process ended
    by itself. For signal handlers: takes no lock that somebody who waits for the process holds."""
    born = birth(pid)
    for kill, number in ((os.kill, signal.SIGTERM), (os.killpg, signal.SIGKILL)):
        if birth(pid) != born or born is None:
            break
        with contextlib.suppress(ProcessLookupError):
            kill(pid, number)
        deadline = time.monotonic() + seconds
        while birth(pid) == born and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
    else:
        return False
    return True

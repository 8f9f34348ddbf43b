"""Child processes, on both sides: start, exit code in words, end with escalation; signals, and the
parent at the other end of the pipe.

`Child` starts a program; `forkserver.start` starts a function in a process that has everything
imported. This module imports the standard library only: the child that scores with a reward must
start in a moment.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from rlhf_lab.runs.processes import birth

# In the words of a command: the number of the child's end of the pipe.
PIPE = "{pipe}"
POLL_SECONDS = 0.2
TAIL_LINES = 30
# What terminals and schedulers send to all processes of a group or a job.
GROUP_SIGNALS = (
    *(signal.SIGINT, signal.SIGTERM, signal.SIGHUP),
    *(signal.SIGUSR1, signal.SIGUSR2),
)
# Set, to any text, it keeps the working folder out of the path by which Python imports.
SAFE_PATH, OURS = "PYTHONSAFEPATH", "rlhf_lab"


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


@contextlib.contextmanager
def safe_path() -> Iterator[None]:
    """Children that packages start with `python -c` or `python -m` inside the block find no module
    in the working folder, where a queue.py would replace Python's."""
    before = os.environ.get(SAFE_PATH)
    os.environ[SAFE_PATH] = before or OURS
    try:
        yield
    finally:
        if not before:
            forget_safe_path()


def forget_safe_path() -> None:
    """Remove what `safe_path` set, also in a child: it is not for programs of the user's."""
    if os.environ.get(SAFE_PATH) == OURS:
        del os.environ[SAFE_PATH]


def exit_text(code: int | None) -> str:
    if code is None:
        return "still running"
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def last_lines(log: Path, number: int = TAIL_LINES) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return "\n".join(lines[-number:]) or "(nothing)"


def end_process(pid: int, seconds: float) -> bool:
    """SIGTERM, and after `seconds` SIGKILL to the process group. Returns whether the process ended
    by itself. For signal handlers: takes no lock that somebody who waits for the process holds."""
    born = birth(pid)
    for kill, number in ((os.kill, signal.SIGTERM), (os.killpg, signal.SIGKILL)):
        if birth(pid) != born or born is None:
            break
        # macOS answers EPERM for a group in which all have ended.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(pid, number)
        deadline = time.monotonic() + seconds
        while birth(pid) == born and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
    else:
        return False
    return True


def ignore_group_signals() -> None:
    """Ignore them: the parent alone decides when this process ends."""
    for number in GROUP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def reset_group_signals() -> None:
    """Give them their default effect, whatever the parent does at them: what a script starts in the
    background ignores SIGINT."""
    for number in GROUP_SIGNALS:
        is_interrupt = number == signal.SIGINT
        signal.signal(number, signal.default_int_handler if is_interrupt else signal.SIG_DFL)


def read_ahead(
    connection: Connection, at_end: Callable[[], object] = lambda: None
) -> SimpleQueue[Any]:
    """A queue that a thread fills with what the parent sends, so that the parent never waits. When
    the parent has closed the pipe, it calls `at_end` and puts None."""
    received: SimpleQueue[Any] = SimpleQueue()

    def read() -> None:
        with contextlib.suppress(EOFError, OSError):
            while True:
                received.put(connection.recv())
        at_end()
        received.put(None)

    threading.Thread(target=read, daemon=True).start()
    return received


def when_ended(parent: Any, act: Callable[[], object]) -> None:
    """Call `act` in a thread when the parent has ended, however it ended. parent: its sentinel, or
    the pipe to it, if the parent sends nothing."""

    def wait_and_act() -> None:
        wait([parent])
        act()

    threading.Thread(target=wait_and_act, daemon=True).start()

"""What a child process does about signals, and about the parent at the other end of its pipe."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from queue import SimpleQueue
from typing import Any

# What terminals and schedulers send to all processes of a group or a job.
GROUP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
PR_SET_PDEATHSIG = 1


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


def die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent ends, even in the middle of a call that
    never returns (Linux). Elsewhere an idle child sees its closed pipe."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it ended before this call
            os._exit(1)

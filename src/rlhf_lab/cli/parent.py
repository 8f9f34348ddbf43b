"""The process that the user starts, where a command may run code of the user's or take hours: it
waits for the process that runs the command.

It ends with 0 only if the command itself returned 0. The other process may end with 0 in many ways:
a library, a thread, C code or a handler at its end calls exit.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import FrameType
from typing import NoReturn

from rlhf_lab.runs.processes import die_with
from rlhf_lab.runs.signals import PASSED_ON, SIGNALS, heeded, listening, say

FAILED = 1
# What a command's exit code is, and the variables without which it cannot run.
Report = Callable[[int, Mapping[str, str]], None]
# The child reports that the command is done, or the variables that it must be started again with.
DONE = b"{}"
MOST_BYTES = 2**16
SHOW_CURSOR = "\x1b[?25h"


def in_child(command: str, run: Callable[[Report], int]) -> int:
    """Run a command in a child process. Returns its exit code there, and here that of the child:
    0 if, and only if, the command reported 0. Signals are passed on; the child ends with this
    process.

    The child stays in the process group, so that the terminal is its own too: what the terminal
    sends, such as Ctrl-Z and `fg`, reaches both.
    """
    parent = os.getpid()
    reading, writing = os.pipe()
    passed = heeded([signal.SIGINT, *SIGNALS])
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [*passed, PASSED_ON])
    child = os.fork()
    if not child:
        die_with(parent)
        with listening(starting=command):
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            return run(functools.partial(report, writing))

    def pass_on(number: int, frame: FrameType | None) -> None:
        with suppress(ProcessLookupError):
            os.kill(child, PASSED_ON if number == signal.SIGINT else number)

    for number in passed:
        signal.signal(number, pass_on)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    _, status = os.waitpid(child, 0)
    os.set_blocking(reading, False)  # the child's own children may hold the other end
    try:
        received = os.read(reading, MOST_BYTES)
    except BlockingIOError:
        received = b""
    os.close(writing)
    return ended(command, os.waitstatus_to_exitcode(status), received)


def report(writing: int, code: int, variables: Mapping[str, str]) -> None:
    """Send the parent that the command is done, or must start again with these variables."""
    if code == 0:
        os.write(writing, json.dumps(dict(variables)).encode())


def ended(command: str, code: int, received: bytes) -> int:
    """The exit code of a child that has ended with this one and has sent this."""
    if received == DONE:
        return 0
    if received:
        start_again(sys.argv[1:], json.loads(received))
    if os.isatty(1):
        say(SHOW_CURSOR)
    if code > 0:
        return code
    how = f"was killed by {signal.Signals(-code).name}" if code else "called exit(0)"
    say(
        f"rlhf-lab {command}: its process {how} before the command was done; `rlhf-lab "
        "runs` lists how far runs are, `rlhf-lab resume RUN` resumes one\n"
    )
    return 128 - code if code else FAILED


def start_again(arguments: Sequence[str], variables: Mapping[str, str]) -> NoReturn:
    """Replace this process by the command with more environment variables."""
    sys.stdout.flush()
    words = [sys.executable, "-P", "-m", "rlhf_lab.cli.main", *arguments]
    os.execve(sys.executable, words, os.environ | dict(variables))

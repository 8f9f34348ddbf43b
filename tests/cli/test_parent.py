"""The process that a user starts ends with 0 only if the command in its child returned 0."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from subprocess import PIPE

import pytest

from rlhf_lab.runs.signals import INTERRUPTED, REQUEUE

PROGRAM = """
import atexit, ctypes, os, signal, sys, threading, time
from rlhf_lab.cli.parent import in_child
from rlhf_lab.runs.signals import begun, current
from rlhf_lab.types.errors import StopRequested

def run(report):
    {body}
    report(0, {{}})
    return 0

sys.exit(in_child("train", run))
"""
EXITS = {
    "pass": 0,
    "report(2, {}); return 2": 2,
    "raise ValueError": 1,
    "sys.exit(0)": 1,
    "os._exit(0)": 1,
    "threading.Thread(target=os._exit, args=(0,)).start(); time.sleep(60)": 1,
    "atexit.register(os._exit, 0); raise ValueError": 1,
    "sys.excepthook = lambda *_: os._exit(0); raise ValueError": 1,
    "ctypes.CDLL(None).exit(0)": 1,
    "ctypes.CDLL(None)._exit(0)": 1,
    "os.kill(os.getpid(), signal.SIGKILL)": 137,
    # What happens after the command is done is no part of it.
    "report(0, {}); os.abort()": 0,
    "report(0, {}); atexit.register(os._exit, 3); return 0": 0,
    # A child of its own may hold the other end of the pipe, and live longer.
    "os.fork() or time.sleep(3600)": 0,
}
# Until the signal has come, of which the child reports the exception.
WAIT = """
    begun()
    try:
        print(os.getpid(), flush=True)
        while True: signal.pause()
    except BaseException as error:
        print(type(error).__name__, flush=True)
        os._exit(9)
"""
# The same in a block that ends by itself, as a round does.
ROUND = """
    begun()
    with current().deferred():
        print(os.getpid(), flush=True)
        while not current().is_requested: time.sleep(0.01)
    os.write(1, b"ended once")
"""


def started(body: str) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", PROGRAM.format(body=body)]
    return subprocess.Popen(words, stdout=PIPE, stderr=PIPE, text=True, start_new_session=True)


@pytest.mark.parametrize("body", EXITS)
def test_no_way_to_end_the_process_of_a_command_makes_it_a_success(body: str) -> None:
    process = started(body)
    try:
        assert process.wait(120) == EXITS[body]
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.mark.parametrize("is_group", [False, True])
@pytest.mark.parametrize(
    ("number", "error"),
    [
        (signal.SIGINT, "KeyboardInterrupt"),
        (signal.SIGTERM, "StopRequested"),
        (signal.SIGHUP, "StopRequested"),
        (signal.SIGUSR1, "StopRequested"),
    ],
)
def test_a_signal_reaches_the_command(number: int, error: str, is_group: bool) -> None:
    process = started(WAIT)
    assert process.stdout is not None
    assert int(process.stdout.readline()) != process.pid
    (os.killpg if is_group else os.kill)(process.pid, number)
    text, _ = process.communicate(timeout=120)
    assert (text.strip(), process.returncode) == (error, 9)


@pytest.mark.parametrize("is_group", [False, True])
def test_ctrl_c_counts_once_for_a_process_and_for_its_group(is_group: bool) -> None:
    process = started(ROUND)
    assert process.stdout is not None
    process.stdout.readline()
    (os.killpg if is_group else os.kill)(process.pid, signal.SIGINT)
    text, _ = process.communicate(timeout=120)
    assert (text, process.returncode) == ("ended once", 0)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, INTERRUPTED), (signal.SIGTERM, REQUEUE)]
)
def test_a_signal_before_the_command_has_begun_ends_it_in_one_line(number: int, code: int) -> None:
    process = started("print(1, flush=True); time.sleep(3600)")
    assert process.stdout is not None
    process.stdout.readline()
    os.killpg(process.pid, number)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == code
    assert len(errors.splitlines()) == 1 and "Traceback" not in errors


def test_the_command_ends_with_the_process_that_the_user_started() -> None:
    process = started("print(os.getpid(), flush=True); time.sleep(3600)")
    assert process.stdout is not None
    process.stdout.readline()
    process.kill()
    process.communicate(timeout=120)  # at the end of the pipe: the child held it too

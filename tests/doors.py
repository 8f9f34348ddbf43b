"""`rlhf-lab ARGUMENTS` as processes that tests signal and kill, without an import for each.

A door is forked from the test session's server, and gets its own children from there too: a server
of its own would import everything once more.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import forkserver, resource_tracker
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from survival import SERVER

# Seconds, where other tests have the machine too.
LIMIT = 300.0
# The server that multiprocessing asks for processes, in this process.
ASKED: Any = forkserver._forkserver


def borrow(address: str) -> None:
    """Have a server that another process owns make this one's children."""
    owned: Any = forkserver
    owned.ensure_running = resource_tracker.ensure_running
    owned.ForkServer.ensure_running = lambda _: resource_tracker.ensure_running()
    ASKED._forkserver_address = address


@dataclass(frozen=True)
class Door:
    """A command that goes on by itself. errors: the file of its complaints."""

    process: BaseProcess
    errors: Path

    def send_signal(self, number: int) -> None:
        """As a person or a scheduler would."""
        assert self.process.pid is not None, "it was started"
        os.kill(self.process.pid, number)

    def ended(self) -> tuple[int | None, str]:
        """Its exit code, negative for a signal, and its complaints. One that goes on for too long
        is killed, and has no code."""
        self.process.join(LIMIT)
        code = self.process.exitcode
        self.process.kill()
        return code, self.errors.read_text()


def door(folder: Path, *arguments: str) -> Door:
    """`rlhf-lab ARGUMENTS` in a new process, whose output is kept in a folder."""
    folder.mkdir(parents=True)
    log, errors = folder / "door.log", folder / "door.err"
    forkserver.ensure_running()
    told = (arguments, log, errors, ASKED._forkserver_address)
    process: BaseProcess = SERVER.Process(target=go_through, args=told)
    process.start()
    return Door(process, errors)


def go_through(arguments: Sequence[str], log: Path, errors: Path, address: str) -> None:
    """The life of the process; ends with the exit code of the command."""
    from rlhf_lab.main import main

    for stream, path in ((1, log), (2, errors)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), stream)
    sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
    borrow(address)
    sys.argv = ["rlhf-lab", *arguments]
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    sys.exit(code)

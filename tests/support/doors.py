"""Commands as processes that tests signal and kill, forked from the server of the session."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path

import tests.support.preloaded  # noqa: F401
from rlhf_lab.runs import forkserver

# Seconds, where other tests have the machine too.
LIMIT = 300.0


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
    return Door(forkserver.start(go_through, (arguments, log, errors)), errors)


def go_through(arguments: Sequence[str], log: Path, errors: Path) -> None:
    """The life of the process; ends with the exit code of the command."""
    from rlhf_lab.cli.main import command_line

    for stream, path in ((1, log), (2, errors)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), stream)
    sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
    sys.argv = ["rlhf-lab", *arguments]
    code = command_line()
    sys.stdout.flush()
    sys.stderr.flush()
    sys.exit(code)

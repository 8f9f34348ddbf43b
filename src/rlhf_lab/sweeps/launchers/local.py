"""Run the commands of a layout on this machine, until the trainer ends."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from rlhf_lab.runs.child import Child, exit_text, last_lines
from rlhf_lab.runs.signals import listening
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.sweeps.launchers.torchrun import SHUTDOWN_SECONDS, Command

POLL_SECONDS = 0.5
GRACE_SECONDS = SHUTDOWN_SECONDS + 30.0


def run(found: Sequence[Command], folder: Path, console: Console) -> int:
    """Run all commands on this machine until the trainer ends. Returns its exit code.

    Servers write to logs in `folder`. A server that ends before the trainer ends the run with the
    last lines of its log.
    """
    folder.mkdir(parents=True, exist_ok=True)
    # Servers come first.
    started: dict[str, Child] = {}
    try:
        with listening():
            for command in found:
                log = None if command.is_trainer else folder / f"{command.name}.log"
                console.print(f"{command.name}: {command.text()}{f' > {log}' if log else ''}")
                started[command.name] = start(command, log)
            *servers, trainer = started
            return exit_code(started[trainer], {name: started[name] for name in servers})
    finally:
        # The trainer first: it needs its servers until its state is saved.
        for child in reversed(started.values()):
            child.stop(GRACE_SECONDS)


def start(command: Command, log: Path | None) -> Child:
    """A command in a session of its own, with this environment's executables first."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return Child(command.words, log, {"PATH": path, **command.environment})


def exit_code(trainer: Child, servers: Mapping[str, Child]) -> int:
    """The trainer's, when it has ended. Raises RuntimeError if a server ends first."""
    while (code := trainer.exit_code) is None:
        for name, server in servers.items():
            if server.exit_code is not None and server.log is not None:
                raise RuntimeError(
                    f"{name} ended with {exit_text(server.exit_code)}; its last lines in "
                    f"{server.log}:\n{last_lines(server.log)}"
                )
        time.sleep(POLL_SECONDS)
    return code

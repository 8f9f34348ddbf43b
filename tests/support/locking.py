"""Processes that take the lock of a run's folder. Children import this module, and little else."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from rlhf_lab.runs.run_directory import run_lock
from rlhf_lab.types.errors import UserError

# Seconds, where other tests have the machine too.
LIMIT = 120.0


def start_at_once(folder: Path, gate: Path, number: int, of: int) -> None:
    """Take the lock of a folder together with others, and write whether it was had. The holder
    stays until all have tried."""
    (gate / f"ready-{number}").touch()
    wait(lambda: len(list(gate.glob("ready-*"))) == of)
    try:
        with run_lock(folder):
            (gate / f"held-{number}").touch()
            wait(lambda: len(list(gate.glob("held-*")) + list(gate.glob("refused-*"))) == of)
    except UserError as error:
        (gate / f"refused-{number}").write_text(str(error))


def hold(folder: Path, gate: Path) -> None:
    """Hold the lock of a folder until killed."""
    with run_lock(folder):
        (gate / "held").touch()
        time.sleep(LIMIT)


def wait(condition: Callable[[], bool]) -> None:
    """Until the condition holds."""
    end = time.monotonic() + LIMIT
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError("the others never came")
        time.sleep(0.002)

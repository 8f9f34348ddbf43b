"""The lock of a run's folder: at most one process trains, resumes or evaluates into it."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from rlhf_lab.runs.disk import refusing
from rlhf_lab.runs.locks import try_lock
from rlhf_lab.runs.provenance import process
from rlhf_lab.runs.reading import Unreadable, read_json
from rlhf_lab.types.errors import UserError

LOCK = ".lock"
# A network file system frees the lock of a dead machine only after its lease.
LEASE_SECONDS = 180.0
POLL_SECONDS = 1.0
OWNER_BYTES = 4096


@contextmanager
def run_lock(folder: Path) -> Iterator[None]:
    """Hold the lock of a run's folder, which is created if need be, while the block runs.

    The kernel frees it when this process ends, however it ends. Raises UserError at once, naming
    the owner, if another process has it. Only a Slurm job that was requeued waits, for the lock
    that it had on the machine before.
    """
    with ExitStack() as stack:
        with refusing(f"output.dir={folder}"):
            take(stack, folder)
        yield


def take(stack: ExitStack, folder: Path) -> None:
    """Lock the folder until the stack is closed, and record the owner in the file of the lock."""
    path = folder / LOCK
    deadline = time.monotonic() + LEASE_SECONDS
    while not stack.enter_context(try_lock(path)):
        owner = owner_of(path)
        job = os.environ.get("SLURM_JOB_ID")
        if job is None or owner.get("job") != job or time.monotonic() > deadline:
            raise UserError(
                f"output.dir={folder} is in use by process {owner.get('pid', '?')} on "
                f"{owner.get('host', '?')}: wait for it, stop it first, or choose another folder"
            )
        time.sleep(POLL_SECONDS)
    path.write_text(json.dumps({**process(), "host": socket.gethostname()}), encoding="utf-8")


def owner_of(path: Path) -> dict[str, Any]:
    """The owner as recorded in the file; empty if it is not recorded yet."""
    try:
        return read_json(path, dict[str, Any], OWNER_BYTES)
    except Unreadable:
        return {}

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

from rlhf_lab.runs.locks import opened, taken
from rlhf_lab.runs.provenance import process
from rlhf_lab.runs.reading import Unreadable, parse_json
from rlhf_lab.types.errors import UserError

LOCK = ".lock"
# A file system of several machines frees the lock of a dead one only after its lease.
LEASE_SECONDS = 180.0
POLL_SECONDS = 1.0
HOLDER_BYTES = 4096


@contextmanager
def run_lock(folder: Path) -> Iterator[None]:
    """Hold the lock of a run's folder, which is made if need be, while the block runs.

    The kernel frees it when this process ends, however it ends. Raises UserError at once, naming
    the holder, if another process has it. Only a Slurm job that was requeued waits, for the lock
    that it had on the machine before.
    """
    with ExitStack() as stack:
        try:
            descriptor = stack.enter_context(opened(folder / LOCK))
        except OSError as error:
            raise UserError(
                f"output.dir={folder} cannot be written to ({error.strerror}): choose another "
                "folder"
            ) from error
        take(descriptor, folder)
        yield


def take(descriptor: int, folder: Path) -> None:
    """Lock the open file and write down who has it."""
    end = time.monotonic() + LEASE_SECONDS
    while not taken(descriptor, folder / LOCK):
        holder = holder_of(descriptor)
        job = os.environ.get("SLURM_JOB_ID")
        if job is None or holder.get("job") != job or time.monotonic() > end:
            raise UserError(
                f"output.dir={folder} is in use by process {holder.get('pid', '?')} on "
                f"{holder.get('host', '?')}: wait for it, stop it first, or choose another folder"
            )
        time.sleep(POLL_SECONDS)
    owner = {**process(), "host": socket.gethostname()}
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps(owner).encode(), 0)


def holder_of(descriptor: int) -> dict[str, Any]:
    """What the holder wrote; nothing if it has not yet."""
    try:
        return parse_json(os.pread(descriptor, HOLDER_BYTES, 0), dict[str, Any], LOCK)
    except Unreadable:
        return {}

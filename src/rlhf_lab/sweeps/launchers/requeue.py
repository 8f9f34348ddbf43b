"""How a sweep's process stops its run: the run saves a checkpoint and ends, and a Slurm job then
waits until Slurm requeues it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Protocol, runtime_checkable

# Longer than clusters let a job live on after the notice of its preemption.
PATIENCE_SECONDS = 1800.0
STATE_SECONDS = 5.0
# A job that Slurm neither ends nor queues again, however often one looks.
STAYS = ("RUNNING", "SUSPENDED")


@runtime_checkable
class Stoppable(Protocol):
    """A task that runs its job in a process of its own."""

    def stop(self, seconds: float) -> None:
        """Have that process save a checkpoint and end, by SIGKILL after `seconds`. Called in a
        signal handler, while the task waits for the same process."""


@contextlib.contextmanager
def passing_on(pid: int) -> Iterator[None]:
    """Forward SIGTERM to the process while the block runs, in a job of Slurm: not every Slurm
    signals all processes of a job, and a second signal changes nothing."""

    def pass_on(number: int, frame: FrameType | None) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)

    before = signal.signal(signal.SIGTERM, pass_on)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def slurm_job() -> str | None:
    """The number of the job that the launcher had Slurm start this process in: 12, or 12_3."""
    if os.environ.get("SUBMITIT_EXECUTOR") != "slurm":
        return None
    if array := os.environ.get("SLURM_ARRAY_JOB_ID"):
        return f"{array}_{os.environ['SLURM_ARRAY_TASK_ID']}"
    return os.environ.get("SLURM_JOB_ID")


def job_state(job: str) -> str | None:
    """The state of a job in Slurm, such as RUNNING; None in a container without Slurm's commands,
    or while the controller does not answer."""
    if shutil.which("scontrol") is None:
        return None
    done = subprocess.run(
        ["scontrol", "--oneliner", "show", "job", job], capture_output=True, text=True, check=False
    )
    words = dict(word.split("=", 1) for word in done.stdout.split() if "=" in word)
    return words.get("JobState")


def after_stop(
    patience: float = PATIENCE_SECONDS,
    state: Callable[[str], str | None] = job_state,
    sleep: Callable[[float], None] = time.sleep,
    leave: Callable[[int], None] = os._exit,
) -> None:
    """Wait for the end of a preempted Slurm job, whose run has stopped with a checkpoint.

    The process must neither succeed nor fail, since the launcher would take the job for ended, but
    end when Slurm takes the job away. Returns after `patience` seconds if Slurm does not, and at
    once outside of Slurm.
    """
    job = slurm_job()
    if job is None:
        return
    sys.stderr.write(f"the run has stopped with a checkpoint; Slurm job {job} waits for its end\n")
    sys.stderr.flush()
    waited = 0.0
    while waited < patience:
        found = state(job)
        if found is not None and found not in STAYS:
            # At once, so that nothing is written down as the job's result.
            leave(os.EX_TEMPFAIL)
        sleep(STATE_SECONDS)
        waited += STATE_SECONDS

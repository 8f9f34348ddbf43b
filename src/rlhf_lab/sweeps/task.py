"""What a launcher runs for each job, on whatever machine: take the job, start it, wait for it."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import active_children
from typing import Any

from hydra.core.hydra_config import HydraConfig

from rlhf_lab.experiment.config import register, typed
from rlhf_lab.runs.child import end_process, exit_text
from rlhf_lab.runs.locks import try_lock
from rlhf_lab.runs.manifest import error_of
from rlhf_lab.runs.provenance import code_version
from rlhf_lab.runs.signals import SIGNALS
from rlhf_lab.sweeps import child
from rlhf_lab.sweeps.job import Job, content_of, last_line, state_of
from rlhf_lab.sweeps.launchers.requeue import after_stop, passing_on, slurm_job
from rlhf_lab.sweeps.stopping import Marks
from rlhf_lab.types.errors import UserError

# Exit codes of a command that a signal stopped, after it saved its state, or before it could.
STOPPED = {os.EX_TEMPFAIL, *(-number for number in SIGNALS)}

# What a job is when its command has done what it should.
ENDED = ("finished", "paused")


class JobFailed(Exception):
    """A job of a sweep failed; the others go on."""


class JobStopped(Exception):
    """A job was asked to stop and saved its state."""


@dataclass(frozen=True)
class JobTask:
    """A launcher's task function: picklable, told by the number of a job which one it is.

    code: version of the code that the sweep was started with. reruns: states besides new and cut
    off that are run again. marks: of the launch.
    """

    jobs: Sequence[Job]
    code: str
    reruns: tuple[str, ...]
    marks: Marks

    def __call__(self, cfg: Any) -> str:
        """How the job ended: `finished`, or `elsewhere` if another launcher has it or had it.

        Raises JobFailed, or JobStopped.
        """
        if slurm_job() and os.environ.get("SLURM_PROCID", "0") != "0":
            # The script of the first node's process starts what runs on the others.
            return "elsewhere"
        register()
        job = self.jobs[HydraConfig.get().job.num]
        with try_lock(job.lock) as is_ours:
            if not is_ours:
                return "elsewhere"
            # Between the sweep's start and this moment another launcher may have done it.
            state = state_of(job).name
            if state == "finished":
                return state
            if job.is_run and state in ("failed", "running") and state not in self.reruns:
                return "elsewhere"
            self.check_same(job, cfg)
            run(job, self.marks)
        return "finished"

    def stop(self, seconds: float) -> None:
        """Ask the job's process to save its state and end; make it, after so many seconds. For a
        launcher's signal handler, while `__call__` waits."""
        for process in active_children():
            assert process.pid is not None, "active processes were started"
            end_process(process.pid, seconds)

    def check_same(self, job: Job, cfg: Any) -> None:
        """Refuse a job that would not be the one that was asked for."""
        if (now := code_version()) != self.code:
            raise UserError(
                f"the code changed since the sweep was started ({self.code} then, {now} now): "
                "start the sweep again"
            )
        if job.is_run and content_of(typed(cfg)) != job.content:
            raise UserError(
                f"the config files changed since the sweep was started: {job.name} would run with "
                "other settings; start the sweep again"
            )


def run(job: Job, marks: Marks) -> None:
    """Start the job and wait until it ends. What interrupts the waiting ends the job first."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # A worker of joblib's: Ctrl-C reaches it too, and is for the sweep to deal with.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    process = child.start(job.words, job.log, job.threads, job.script)
    assert process.pid is not None, "it was started"
    # A job of Slurm's outlives its sweep, and the sweep's marks.
    with passing_on(process.pid) if slurm_job() else marks.child(process.pid):
        try:
            # After the mark, so that whoever stops the sweep sees the one or the other.
            if not marks.is_stopped:
                process.join()
        finally:
            child.end(process)
    code = process.exitcode
    assert code is not None, "the child has ended"
    if code in STOPPED:
        after_stop()
        raise JobStopped(f"{job.name} was stopped; it goes on when the sweep is started again")
    if code:
        raise JobFailed(f"{exit_text(code)}: {last_words(job)}")
    if (state := state_of(job).name) not in ENDED:
        raise JobFailed(f"its process ended before the job did ({state}): {last_words(job)}")


def last_words(job: Job) -> str:
    """The error that a run noted down, or else the last line of its log."""
    if noted := error_of(state_of(job).manifest):
        return noted
    return last_line(job.log) or "it said nothing"

"""Run one job of a sweep, in the process that a launcher started for it."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import active_children
from typing import Any

from hydra.core.hydra_config import HydraConfig

from rlhf_lab.experiment.config import typed
from rlhf_lab.experiment.config_schema import register
from rlhf_lab.experiment.plugins import activate
from rlhf_lab.runs.child import end_process, exit_text
from rlhf_lab.runs.locks import try_lock
from rlhf_lab.runs.manifest import error_of
from rlhf_lab.runs.provenance import code_version
from rlhf_lab.runs.signals import SIGNALS
from rlhf_lab.sweeps import child
from rlhf_lab.sweeps.job import Job, content_of, last_line, state_of
from rlhf_lab.sweeps.launchers.requeue import after_stop, passing_on, slurm_job
from rlhf_lab.sweeps.stop_jobs import StopFiles
from rlhf_lab.types.errors import UserError

# Exit codes of a command that a signal stopped, after it saved its state, or before it could.
STOPPED = {os.EX_TEMPFAIL, *(-number for number in SIGNALS)}

# States of a job whose command did its work.
ENDED = ("finished", "paused")


class JobFailed(Exception):
    """A job of a sweep failed; the others go on."""


class JobStopped(Exception):
    """A job was stopped and saved its state."""


@dataclass(frozen=True)
class JobRunner:
    """The task function of Hydra's launchers, which pickle it and call it once per job.

    code: version of the code that started the sweep. reruns: further states, beside new and
    resumable ones, in which a job is run. stop_files: of the launch. plugins: modules that a
    launcher's worker activates when it reads this, before it composes a job.
    """

    jobs: Sequence[Job]
    code: str
    reruns: tuple[str, ...]
    stop_files: StopFiles
    plugins: tuple[str, ...] = ()

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        activate(self.plugins)

    def __call__(self, cfg: Any) -> str:
        """How the job ended: `finished`, or `elsewhere` if another launcher runs or ran it.

        Raises JobFailed, or JobStopped.
        """
        if slurm_job() and os.environ.get("SLURM_PROCID", "0") != "0":
            # The process of the first node starts those of the others.
            return "elsewhere"
        register()
        job = self.jobs[HydraConfig.get().job.num]
        with try_lock(job.lock) as is_ours:
            if not is_ours:
                return "elsewhere"
            job.lock.touch()  # when it began, for the table of jobs
            # Another launcher may have run the job since the sweep started.
            state = state_of(job).name
            if state == "finished":
                return state
            if job.is_run and state in ("failed", "running") and state not in self.reruns:
                return "elsewhere"
            self.require_same(job, cfg)
            run(job, self.stop_files)
        return "finished"

    def stop(self, seconds: float) -> None:
        """Ask the job's process to save its state and end; make it, after so many seconds. For a
        launcher's signal handler, while `__call__` waits."""
        for process in active_children():
            assert process.pid is not None, "active processes were started"
            end_process(process.pid, seconds)

    def require_same(self, job: Job, cfg: Any) -> None:
        """Refuse to run a job whose code or config changed since the sweep started."""
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


def run(job: Job, stop_files: StopFiles) -> None:
    """Start the job and wait until it ends. An exception while waiting stops the job first."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # A worker of joblib: Ctrl-C reaches it too, but the sweep handles it.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    process = child.start(job.words, job.log, job.threads, job.script)
    assert process.pid is not None, "it was started"
    try:
        # A job on Slurm may run longer than its sweep. Elsewhere a second signal deletes the stop
        # files; then this fails, and the process that was just started has to end.
        with passing_on(process.pid) if slurm_job() else stop_files.child(process.pid):
            # Checked after the file is written, so that a stop sees the one or the other.
            if not stop_files.is_stopped:
                process.join()
    finally:
        child.end(process)
    code = process.exitcode
    assert code is not None, "the child has ended"
    if code in STOPPED:
        after_stop()
        raise JobStopped(f"{job.name} was stopped; it goes on when the sweep is started again")
    if code:
        raise JobFailed(f"{exit_text(code)}: {last_error(job)}")
    if (state := state_of(job).name) not in ENDED:
        raise JobFailed(f"its process ended before the job did ({state}): {last_error(job)}")


def last_error(job: Job) -> str:
    """The error in the run's manifest, or else the last line of its log."""
    return error_of(state_of(job).manifest) or last_line(job.log) or "its log is empty"

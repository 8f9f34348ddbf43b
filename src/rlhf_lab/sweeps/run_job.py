"""Run one job of a sweep, in the process that a launcher started for it.

The job has a separate process: one that is killed, or fills its memory, harms no other job. Where
a signal stops the jobs on this machine, each saves its state first, whatever its launcher.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import active_children, parent_process
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType
from typing import Any

from hydra.core.hydra_config import HydraConfig

from rlhf_lab.experiment.config.plugins import activate
from rlhf_lab.experiment.config.schema import register
from rlhf_lab.experiment.config.typed import typed
from rlhf_lab.runs import forkserver
from rlhf_lab.runs.child import end_process, exit_text, when_ended
from rlhf_lab.runs.locks import try_lock
from rlhf_lab.runs.manifest import error_of
from rlhf_lab.runs.processes import birth
from rlhf_lab.runs.provenance import code_version
from rlhf_lab.runs.signals import INTERRUPTS, SIGNALS, Interrupts, begun, heeded
from rlhf_lab.sweeps.job import Job, content_of, last_line, state_of
from rlhf_lab.sweeps.launchers.slurm_jobs import Stoppable, after_stop, passing_on, slurm_job
from rlhf_lab.types.errors import StopRequested, UserError

# The module of the console script; a job is what a person would type.
DOOR = "rlhf_lab.cli.main"
# Libraries read these once, when they are loaded.
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
STOP_SIGNALS = (*INTERRUPTS, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
# States of a job whose command did its work.
ENDED = ("finished", "paused")


def start_child(words: Sequence[str], log: Path, threads: int, script: str = "") -> BaseProcess:
    """`rlhf-lab WORDS`, or a bash script instead, in a new session, writing to a log, with
    so many threads."""
    pin(threads)
    log.parent.mkdir(parents=True, exist_ok=True)
    return forkserver.start(
        live_as_child, (tuple(words), str(log), script, threads), name="rlhf-lab"
    )


def pin(threads: int) -> None:
    """Set the threads of libraries that are still to be loaded, here and in children, where the
    environment sets none. A variable that is set to nothing sets none."""
    for name in THREADS:
        os.environ[name] = os.environ.get(name) or str(threads)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


def live_as_child(words: tuple[str, ...], log: str, script: str, threads: int) -> None:
    """Run the command in the child and exit with its code."""
    # The server may have been started with another number.
    pin(threads)
    # Ctrl-C is for the sweep, which then sends SIGTERM to its jobs.
    os.setsid()
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    os.close(descriptor)
    if script:
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        os.execvpe("bash", ["bash", "-c", script], {**os.environ, "PATH": path})
    parent = parent_process()
    assert parent is not None, "a child has a parent"
    # It saves its state and ends.
    when_ended(parent.sentinel, lambda: os.kill(os.getpid(), signal.SIGTERM))
    sys.argv = ["rlhf-lab", *words]
    code: int = importlib.import_module(DOOR).command_line()
    sys.stdout.flush()
    sys.exit(code)


@dataclass(frozen=True)
class StopFiles:
    """Files through which a sweep stops its jobs: `stop`, after which no job starts, and a file for
    each running job, named after its process."""

    folder: Path

    @property
    def is_stopped(self) -> bool:
        return (self.folder / "stop").exists()

    @contextmanager
    def child(self, pid: int) -> Iterator[None]:
        """Keep the file of a process while the block runs."""
        path = self.folder / str(pid)
        path.write_text(birth(pid) or "", encoding="utf-8")
        try:
            yield
        finally:
            path.unlink(missing_ok=True)

    def stop(self) -> None:
        """Start no more jobs; send SIGTERM to running ones, which then save their state."""
        (self.folder / "stop").touch()
        for path in self.folder.iterdir():
            # The number may belong to another process by now.
            if path.name.isdigit() and birth(int(path.name)) == path.read_text(encoding="utf-8"):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(path.name), signal.SIGTERM)


@contextmanager
def stop_on_signal(folder: Path, is_here: bool) -> Iterator[StopFiles]:
    """The stop files of a launch. A signal stops its jobs; when they have ended, it raises here. A
    second signal raises at once. Jobs on other machines (not is_here) are not stopped.
    """
    stop_files = StopFiles(Path(tempfile.mkdtemp(prefix=".launch-", dir=folder)))
    received: list[int] = []
    interrupts = Interrupts()
    begun()

    def handle(number: int, frame: FrameType | None) -> None:
        if number in INTERRUPTS and not interrupts.is_new(number):
            return
        if received or not is_here:
            raise_for(number)
        received.append(number)
        stop_files.stop()

    before = {number: signal.signal(number, handle) for number in heeded(STOP_SIGNALS)}
    try:
        yield stop_files
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        shutil.rmtree(stop_files.folder, ignore_errors=True)
    if received:
        raise_for(received[0])


def raise_for(number: int) -> None:
    text = "the same command goes on with the jobs that are not finished"
    raise (KeyboardInterrupt if number in INTERRUPTS else StopRequested)(text)


# Exit codes of a command that a signal stopped, after it saved its state, or before it could.
STOPPED = {os.EX_TEMPFAIL, *(-number for number in SIGNALS)}


class JobFailed(Exception):
    """A job of a sweep failed; the others go on."""


class JobStopped(Exception):
    """A job was stopped and saved its state."""


@dataclass(frozen=True)
class JobRunner(Stoppable):
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
    if stop_files.is_stopped:
        raise JobStopped(f"{job.name} was not started; it is when the sweep is started again")
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # A worker of joblib: Ctrl-C reaches it too, but the sweep handles it.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    process = start_child(job.words, job.log, job.threads, job.script)
    assert process.pid is not None, "it was started"
    try:
        # A job on Slurm may run longer than its sweep. Elsewhere a second signal deletes the stop
        # files; then this fails, and the process that was just started has to end.
        with passing_on(process.pid) if slurm_job() else stop_files.child(process.pid):
            # Checked after the file is written, so that a stop sees the one or the other.
            if not stop_files.is_stopped:
                process.join()
    finally:
        if process.is_alive():
            os.kill(process.pid, signal.SIGTERM)
        process.join()
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

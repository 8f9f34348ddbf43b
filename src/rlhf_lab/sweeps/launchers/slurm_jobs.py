"""Slurm jobs: which have ended, how, and where their logs are; and how a preempted one stops its
run, which saves a checkpoint and ends, and then waits until Slurm requeues it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from rlhf_lab.sweeps.launchers.slurm_words import remedy_of
from rlhf_lab.types.data import Clock

POLL_SECONDS = 1.0
STATES_SECONDS = 8.0
# States in which a job is over, with the remedy. Jobs in other states run, now or later.
REMEDY = {
    "BOOT_FAIL": "its node did not start; run the sweep again",
    "CANCELLED": "it was cancelled; run the sweep again to go on",
    "COMPLETED": "its process ended without a result",
    "DEADLINE": "its deadline passed",
    "FAILED": "its process was killed, or could not start",
    "NODE_FAIL": "its node was lost; run the sweep again to go on",
    "OUT_OF_MEMORY": "raise hydra.launcher.mem_gb, or lower engine.micro_rows",
    "PREEMPTED": "this cluster does not queue preempted jobs again; run the sweep again to go on",
    "REVOKED": "another cluster took it over",
    "TIMEOUT": "it did not stop in time: raise hydra.launcher.signal_delay_s",
}
# A result may reach this host after Slurm reports that the job is over.
LATE_SECONDS = 6.0
# A preempted job is over only if Slurm does not queue it again.
PREEMPTED_SECONDS = 180.0
# Longer than clusters let a job live on after the notice of its preemption.
PATIENCE_SECONDS = 1800.0
REQUEUE_SECONDS = 5.0
# A job that Slurm neither ends nor queues again, however often one looks.
STAYS = ("RUNNING", "SUSPENDED")
# Reasons to wait that pass without the user.
PASSING = (
    "None", "Priority", "Resources", "Dependency", "BeginTime", "JobArrayTaskLimit", "Cleaning",
    "Prolog", "SchedDefer", "NonZeroExitCode", "RaisedSignal",
)  # fmt: skip


@dataclass(frozen=True)
class SlurmState:
    """A job in Slurm's accounting. name: FAILED, RUNNING, ... code: exit code and signal."""

    name: str = "UNKNOWN"
    code: str = ""
    nodes: str = ""

    @property
    def is_over(self) -> bool:
        return self.name in REMEDY

    @property
    def patience(self) -> float:
        """Seconds after which a job in this state without a result is lost."""
        return PREEMPTED_SECONDS if self.name == "PREEMPTED" else LATE_SECONDS


@dataclass(frozen=True)
class Submitted:
    """A submitted job. id: 12, or 12_3 in an array. result: the file that it writes at its end."""

    id: str
    result: Path
    stdout: Path
    stderr: Path

    def has_result(self) -> bool:
        # Listing the folder makes network file systems look again.
        folder = self.result.parent
        return folder.is_dir() and self.result.name in os.listdir(folder)


Query = Callable[[Sequence[str]], Mapping[str, SlurmState]]
Reasons = Callable[[Sequence[str]], None]


class LostJob(RuntimeError):
    """A job that Slurm ended and that wrote no result."""

    def __init__(self, job: Submitted, state: SlurmState) -> None:
        self.job, self.state = job, state
        super().__init__(job, state)

    def __str__(self) -> str:
        remedy = REMEDY.get(self.state.name, "")
        return f"Slurm job {described(self.job, self.state)}: {remedy}"


class JobsGoOn(KeyboardInterrupt):
    """The launching process was interrupted; its Slurm jobs go on."""


def described(job: Submitted, state: SlurmState) -> str:
    """A job with its state and its logs."""
    code = f", exit code {state.code}" if state.code else ""
    nodes = f" on {state.nodes}" if state.nodes else ""
    return f"{job.id} is {state.name}{code}{nodes} (logs: {job.stdout}, {job.stderr})"


def parents(ids: Iterable[str]) -> list[str]:
    """The numbers of whole arrays, which scancel and sacct accept."""
    return sorted({id_.split("_")[0] for id_ in ids}, key=int)


def query_accounting(ids: Sequence[str]) -> Mapping[str, SlurmState]:
    """States by job id, of those that accounting knows. Raises CalledProcessError."""
    command = ["sacct", "--allocations", "--parsable2", "--noheader"]
    done = subprocess.run(
        [*command, "--format=JobID,State,ExitCode,NodeList", f"--jobs={','.join(parents(ids))}"],
        capture_output=True,
        text=True,
        errors="replace",
        check=True,
        # Otherwise the numbers of an array's waiting jobs are cut to 64 characters.
        env={**os.environ, "SLURM_BITSTR_LEN": "0"},
    )
    found: dict[str, SlurmState] = {}
    for line in filter(None, done.stdout.splitlines()):
        found |= parsed(line)
    return found


def parsed(line: str) -> dict[str, SlurmState]:
    """One line of sacct: `12_3|CANCELLED by 0|0:15|node1`, or `12_[0-5,7%2]|PENDING|...`."""
    id_, name, code, nodes = line.split("|")
    assigned = "" if nodes == "None assigned" else nodes
    state = SlurmState(name.split()[0], "" if code == "0:0" else code, assigned)
    return {one: state for one in expanded(id_)}


def expanded(id_: str) -> list[str]:
    """The jobs of one line: `12_[0-2,7%2]` is 12_0, 12_1, 12_2 and 12_7."""
    array, bracket, rest = id_.partition("_[")
    if not bracket:
        return [id_]
    found: list[str] = []
    for part in rest.rstrip("]").split("%")[0].split(","):
        first, _, last = part.partition("-")
        found += [f"{array}_{number}" for number in range(int(first), int(last or first) + 1)]
    return found


def wait_for(
    jobs: Sequence[Submitted],
    query: Query = query_accounting,
    clock: Clock = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    reasons: Reasons = lambda ids: None,
) -> dict[str, SlurmState]:
    """Wait until every job has a result or is lost, which is reported at once. Returns the last
    known states by job id. reasons: called with the jobs that wait to start."""
    states = {job.id: SlurmState() for job in jobs}
    over_since: dict[str, float] = {}
    pending = {job.id: job for job in jobs}
    next_query = clock()
    while pending:
        if clock() >= next_query:
            states |= states_of(query, list(pending))
            next_query = clock() + STATES_SECONDS
            reasons([id_ for id_ in pending if states[id_].name == "PENDING"])
            over = {id_: clock() for id_ in pending if states[id_].is_over}
            over_since = {id_: over_since.get(id_, since) for id_, since in over.items()}
        for id_, job in list(pending.items()):
            is_lost = clock() - over_since.get(id_, clock()) >= states[id_].patience
            if job.has_result():
                del pending[id_]
            elif is_lost:
                sys.stderr.write(f"{LostJob(job, states[id_])}\n")
                del pending[id_]
        if pending:
            sleep(POLL_SECONDS)
    return states


def states_of(query: Query, ids: Sequence[str]) -> Mapping[str, SlurmState]:
    """The states in accounting; none while it does not answer, since the jobs run on and write
    their results as files."""
    try:
        states = query(ids)
    except subprocess.CalledProcessError as error:
        sys.stderr.write(f"sacct does not answer ({error.stderr.strip()}); asking again\n")
        return {}
    return {id_: state for id_, state in states.items() if id_ in set(ids)}


@dataclass
class PendingReasons:
    """Prints why jobs wait, each reason once, with the keys that change it. options: the
    launcher's. A reason counts when two looks find it: some pass while Slurm places a job."""

    options: Mapping[str, Any]
    _before: frozenset[str] = frozenset()
    _shown: set[str] = field(default_factory=set)

    def __call__(self, ids: Sequence[str]) -> None:
        found: dict[str, str] = {}
        for array in parents(ids):
            for words in shown_jobs(array):
                # Nodes follow the reason: ReqNodeNotAvail,_UnavailableNodes:gpu[1-4].
                reason = words.get("Reason", "None").split(",")[0]
                if words.get("JobState") == "PENDING" and reason not in PASSING:
                    found.setdefault(reason, array)
        for reason in sorted(self._before & found.keys() - self._shown):
            sys.stderr.write(
                f"Slurm job {found[reason]} waits because of {reason}: "
                f"{remedy_of(reason, self.options)} if it does not start; "
                f"`scancel {found[reason]}` ends it\n"
            )
            self._shown.add(reason)
        self._before = frozenset(found)


class Stoppable(ABC):
    """A task that runs its job in a separate process."""

    @abstractmethod
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


def shown_jobs(job: str) -> list[dict[str, str]]:
    """What Slurm shows of a job, or of each part of an array, by name: JobState, Reason, ... Empty
    in a container without Slurm's commands, or while the controller does not answer."""
    if shutil.which("scontrol") is None:
        return []
    done = subprocess.run(
        ["scontrol", "--oneliner", "show", "job", job],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    return [
        dict(word.split("=", 1) for word in line.split() if "=" in word)
        for line in filter(None, done.stdout.splitlines())
    ]


def job_state(job: str) -> str | None:
    """The state of a job in Slurm, such as RUNNING; None where it is not known."""
    return next((words.get("JobState") for words in shown_jobs(job)), None)


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
        sleep(REQUEUE_SECONDS)
        waited += REQUEUE_SECONDS

"""The Slurm launcher: its options, and the arrays of jobs that it submits and waits for."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, JobStatus

from rlhf_lab.sweeps.launchers.slurm_cluster import array_size, check_ready, output_of
from rlhf_lab.sweeps.launchers.slurm_jobs import (
    JobsGoOn,
    LostJob,
    PendingReasons,
    SlurmState,
    Stoppable,
    Submitted,
    described,
    parents,
    wait_for,
)
from rlhf_lab.sweeps.launchers.slurm_words import gigabytes_of, minutes_of, remedy_of
from rlhf_lab.types.errors import StopRequested, UserError

TARGET = "hydra_plugins.rlhf_lab_plugin.slurm_launcher.SlurmLauncher"
LEAST = {
    "signal_delay_s": 1,
    "max_num_timeout": 0,
    "array_parallelism": 1,
    "nodes": 1,
    "tasks_per_node": 1,
}
# Share of the time between Slurm's signal and the limit; then the job is submitted again.
SHARE_TO_STOP = 0.8
# Options of submitit's executor itself, not of the jobs.
OF_EXECUTOR = ("_target_", "submitit_folder", "max_num_timeout", "container")
# Options of any scheduler for submitit; the others get a prefix.
SHARED = (
    "name",
    "timeout_min",
    "cpus_per_task",
    "tasks_per_node",
    "mem_gb",
    "nodes",
    "stderr_to_stdout",
)
# Variables of an allocation that sbatch and srun would read as options of the jobs.
OF_ALLOCATION = re.compile(r"(SLURM|SLURMD|SRUN|SBATCH|PMI|PMIX)_\w+")
# Where the cluster is and who the user is there.
OF_CLUSTER = ("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_CLUSTERS", "SLURM_JWT")
# A user's defaults for sbatch, which become options of the jobs where these are not set.
DEFAULTS = {f"SBATCH_{key.upper()}": key for key in ("account", "partition", "qos", "constraint")}


@dataclass
class SlurmOptions:
    """hydra/launcher=slurm: the resources of each job.

    The options of hydra-submitit-launcher (docs/slurm.md), and container.
    timeout_min, signal_delay_s: minutes of a job, and seconds before their end at which it saves a
    checkpoint to go on in a new job; max_num_timeout: how often. timeout_min, mem_gb and
    gpus_per_node are read as sbatch writes them too: 12:00:00, 32G, l40s:1. container: an image for
    `srun --container-image` (pyxis), or a command with spaces, which is put before python.
    """

    _target_: str = TARGET
    submitit_folder: str = "${hydra.sweep.dir}/.submitit/%j"
    name: str = "${hydra.job.name}"
    timeout_min: int | str = 1440
    cpus_per_task: int | None = None
    gpus_per_node: int | str | None = None
    tasks_per_node: int = 1
    mem_gb: float | str | None = None
    nodes: int = 1
    stderr_to_stdout: bool = False
    partition: str | None = None
    qos: str | None = None
    comment: str | None = None
    constraint: str | None = None
    exclude: str | None = None
    gres: str | None = None
    cpus_per_gpu: int | None = None
    gpus_per_task: int | None = None
    mem_per_gpu: str | None = None
    mem_per_cpu: str | None = None
    account: str | None = None
    signal_delay_s: int = 300
    max_num_timeout: int = 20
    additional_parameters: dict[str, Any] = field(default_factory=dict)
    array_parallelism: int = 256
    setup: list[str] | None = None
    container: str = ""


def check_options(options: SlurmOptions) -> None:
    """Refuse options with which no job could run or save its checkpoint."""
    for key, least in LEAST.items():
        if (value := getattr(options, key)) < least:
            raise UserError(f"hydra.launcher.{key}={value}: choose {least} or more")
    gigabytes_of(options.mem_gb)
    if (minutes := minutes_of(options.timeout_min)) < 1:
        raise UserError(f"hydra.launcher.timeout_min={options.timeout_min}: choose 1 or more")
    if options.signal_delay_s >= 60 * minutes:
        raise UserError(
            f"hydra.launcher.signal_delay_s={options.signal_delay_s} with hydra.launcher."
            f"timeout_min={options.timeout_min}: every job would be stopped when it starts; "
            f"raise timeout_min, or lower signal_delay_s below {60 * minutes}"
        )
    folder = Path(options.submitit_folder).expanduser().absolute()
    if "%" in str(folder).replace("%j", ""):
        raise UserError(
            f"hydra.launcher.submitit_folder={folder}: Slurm replaces % and the letter behind it "
            "in the paths of logs; pass another output.root, or hydra.launcher.submitit_folder="
            "FOLDER/%j with a folder without %"
        )
    if options.tasks_per_node > 1:
        raise UserError(
            f"hydra.launcher.tasks_per_node={options.tasks_per_node}: a run starts its processes "
            "itself; leave it at 1 and pass hydra.sweeper.layout for several trainers"
        )


@dataclass
class Requeued:
    """The callable of a Slurm job: the plugin's, with a checkpoint that waits for the run's.

    plugin: hydra-submitit-launcher's launcher, set up. task: its task function. patience: seconds
    for the run to save its checkpoint.
    """

    plugin: Any
    task: Any
    patience: float

    def __call__(self, *arguments: Any) -> Any:
        return self.plugin(*arguments)

    def checkpoint(self, *arguments: Any) -> Any:
        """The submission that resumes the job, once its run has saved its state. submitit calls
        this in its signal handler and has Slurm queue the job again."""
        from submitit.core.job_environment import JobEnvironment
        from submitit.core.utils import DelayedSubmission

        if isinstance(self.task, Stoppable):
            self.task.stop(self.patience)
        # Not from memory: the state of this process may not be picklable.
        path = JobEnvironment().paths.submitted_pickle
        # Left by a job that was killed while it wrote the file.
        path.with_suffix(f"{path.suffix}.save_tmp").unlink(missing_ok=True)
        return DelayedSubmission.load(path)


def launch(
    options: SlurmOptions,
    setting: Mapping[str, Any],
    job_overrides: Sequence[Sequence[str]],
    first: int,
) -> list[JobReturn]:
    """Submit all jobs, wait for all, and return how each ended, in order.

    setting: what Hydra sets a launcher up with. first: number of the first job. A job that failed,
    was killed or cancelled has status FAILED and its exception. Raises UserError where nothing
    could be submitted, JobsGoOn when this process is stopped.
    """
    options = replace(options, **defaults_of_user(options))
    check_options(options)
    most = array_size(check_ready())
    from hydra_plugins.hydra_submitit_launcher.submitit_launcher import SlurmLauncher as Plugin

    plugin = Plugin(**asdict(options))
    plugin.setup(**setting)
    call = Requeued(plugin, setting["task_function"], SHARE_TO_STOP * options.signal_delay_s)
    rows = arguments(job_overrides, first)
    jobs = [submitted(job) for job in submit(options, call, rows, most)]
    ids = parents(job.id for job in jobs)
    sys.stderr.write(f"submitted {len(jobs)} jobs to Slurm: {' '.join(ids)}\n")
    try:
        states = wait_for(jobs, reasons=PendingReasons(asdict(options)))
    except (KeyboardInterrupt, StopRequested) as error:
        raise JobsGoOn(
            f"the {len(jobs)} jobs go on without this process: run the same command again "
            f"for the rest, or end them with `scancel {' '.join(ids)}`"
        ) from error
    return [
        outcome(job, states[job.id], overrides)
        for job, overrides in zip(jobs, job_overrides, strict=True)
    ]


def arguments(job_overrides: Sequence[Sequence[str]], first: int) -> list[tuple[Any, ...]]:
    """The plugin's arguments for each job: overrides, folder key, number, id, Hydra's state."""
    return [
        (list(overrides), "hydra.sweep.dir", number, f"job_id_for_{number}", Singleton.get_state())
        for number, overrides in enumerate(job_overrides, start=first)
    ]


def executor(options: SlurmOptions) -> Any:
    """submitit's executor with the options of the jobs. An image has its own python on its PATH,
    and sees the working folder, which the project's runs are below."""
    import submitit

    python, srun, folder = f"{shlex.quote(sys.executable)} -P", [], Path.cwd()
    if " " in options.container:
        python = f"{options.container} python -P"
    elif options.container:
        seen = [f"--container-mounts={folder}:{folder}", f"--container-workdir={folder}"]
        python, srun = "python -P", [f"--container-image={options.container}", *seen]
    result = submitit.AutoExecutor(
        folder=options.submitit_folder,
        cluster="slurm",
        slurm_max_num_timeout=options.max_num_timeout,
        slurm_python=python,
    )
    parameters = {
        key if key in SHARED else f"slurm_{key}": value
        for key, value in asdict(options).items()
        if key not in OF_EXECUTOR
    }
    parameters["timeout_min"] = minutes_of(options.timeout_min)
    parameters["mem_gb"] = gigabytes_of(options.mem_gb)
    result.update_parameters(**parameters, slurm_srun_args=srun)
    return result


def submit(
    options: SlurmOptions, call: Requeued, rows: Sequence[tuple[Any, ...]], most: int
) -> list[Any]:
    """Submit arrays of at most `most` jobs, of which array_parallelism jobs run at a time in all.

    Raises UserError, with Slurm's own message, if Slurm refuses one; no job is left behind then.
    """
    from submitit.core.utils import FailedJobError

    arrays = [rows[start : start + most] for start in range(0, len(rows), most)]
    # Arrays of one lane run one after the other.
    lanes = min(len(arrays), options.array_parallelism)
    share, others = divmod(options.array_parallelism, lanes)
    made: list[list[Any]] = []
    try:
        with without_allocation():
            for number, array in enumerate(arrays):
                parallelism = share + (number % lanes < others)
                parts = executor(replace(options, array_parallelism=parallelism))
                if number >= lanes:
                    (before,) = parents(job.job_id for job in made[number - lanes])
                    parts.update_parameters(slurm_dependency=f"afterany:{before}")
                made.append(parts.map_array(call, *zip(*array, strict=True)))
    except FailedJobError as error:
        if ids := parents(job.job_id for one in made for job in one):
            output_of(["scancel", *ids])
        raise UserError(
            f"launcher=slurm: sbatch refused the jobs ({error}): "
            f"{remedy_of(str(error), asdict(options))} (sinfo lists the partitions)"
        ) from error
    return [job for one in made for job in one]


def defaults_of_user(options: SlurmOptions) -> dict[str, Any]:
    """Options that are not set, from the user's environment for sbatch. The rest of it, which would
    replace options of the jobs, is named as left out."""
    unset = {name: key for name, key in DEFAULTS.items() if getattr(options, key) is None}
    own = [name for name in os.environ if name.startswith("SBATCH_")]
    if left := sorted(name for name in own if name not in unset):
        sys.stderr.write(
            f"launcher=slurm: {', '.join(left)} of the environment are left out: "
            "hydra.launcher.* sets the options of jobs, additional_parameters any other\n"
        )
    return {unset[name]: os.environ[name] for name in own if name in unset and os.environ[name]}


@contextmanager
def without_allocation() -> Iterator[None]:
    """The environment without what an allocation, which the sweep may have been started in, sets
    for its own steps: jobs inherit the environment of sbatch."""
    left = {
        name: value
        for name, value in os.environ.items()
        if OF_ALLOCATION.fullmatch(name) and name not in OF_CLUSTER
    }
    if {"SLURM_JOB_GPUS", "SLURM_STEP_GPUS"} & left.keys() and "CUDA_VISIBLE_DEVICES" in os.environ:
        left["CUDA_VISIBLE_DEVICES"] = os.environ["CUDA_VISIBLE_DEVICES"]
    for name in left:
        del os.environ[name]
    try:
        yield
    finally:
        os.environ.update(left)


def submitted(job: Any) -> Submitted:
    """submitit's job as ours. The process of the first node writes the result."""
    first = job.task(0)
    return Submitted(job.job_id, first.paths.result_pickle, first.paths.stdout, first.paths.stderr)


def outcome(job: Submitted, state: SlurmState, overrides: Sequence[str]) -> JobReturn:
    """The result of one job; its exception if it failed."""
    try:
        found = result(job, state)
    except Exception as error:
        # The other jobs go on.
        found = JobReturn(overrides=list(overrides), status=JobStatus.FAILED)
        found.return_value = error
    if found.status is JobStatus.FAILED and not isinstance(found._return_value, LostJob):
        found._return_value.add_note(f"Slurm job {described(job, state)}")
    return found


def result(job: Submitted, state: SlurmState) -> JobReturn:
    """The value that the job returned. Raises LostJob if there is none, RuntimeError with its
    traceback if it failed outside of its task."""
    from submitit.core.utils import pickle_load

    if not job.has_result():
        raise LostJob(job, state)
    word, value = pickle_load(job.result)
    if word == "error":
        raise RuntimeError(value)
    return value


def register() -> None:
    """Register the options with Hydra: hydra/launcher=slurm."""
    ConfigStore.instance().store(group="hydra/launcher", name="slurm", node=SlurmOptions)

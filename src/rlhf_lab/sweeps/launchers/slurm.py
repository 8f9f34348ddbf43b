"""Check the options of the Slurm launcher and the cluster before any job is submitted."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, JobStatus

from rlhf_lab.sweeps.launchers.slurm_jobs import (
    JobsGoOn,
    LostJob,
    SlurmState,
    Stoppable,
    Submitted,
    described,
    parents,
    wait_for,
)
from rlhf_lab.types.errors import StopRequested, UserError

TARGET = "hydra_plugins.rlhf_lab_plugin.slurm_launcher.SlurmLauncher"
PACKAGES = ("submitit", "hydra_plugins.hydra_submitit_launcher")
COMMANDS = ("sbatch", "srun", "scontrol", "sacct")
OTHERWISE = "or run the jobs on this machine: LAUNCHER=joblib of make, launcher=joblib of rlhf-lab"
LEAST = {
    "timeout_min": 1,
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
    "gpus_per_node",
    "tasks_per_node",
    "mem_gb",
    "nodes",
    "stderr_to_stdout",
)


@dataclass
class SlurmOptions:
    """hydra/launcher=slurm: the resources of each job.

    The options of hydra-submitit-launcher (docs/slurm.md), and container.
    timeout_min, signal_delay_s: minutes of a job, and seconds before their end at which it saves a
    checkpoint to go on in a new job; max_num_timeout: how often. container: an image for
    `srun --container-image` (pyxis), or a command with spaces, which is put before python.
    """

    _target_: str = TARGET
    submitit_folder: str = "${hydra.sweep.dir}/.submitit/%j"
    name: str = "${hydra.job.name}"
    timeout_min: int = 1440
    cpus_per_task: int | None = None
    gpus_per_node: int | None = None
    tasks_per_node: int = 1
    mem_gb: int | None = None
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
    if options.signal_delay_s >= 60 * options.timeout_min:
        raise UserError(
            f"hydra.launcher.signal_delay_s={options.signal_delay_s} with hydra.launcher."
            f"timeout_min={options.timeout_min}: every job would be stopped when it starts; "
            f"raise timeout_min, or lower signal_delay_s below {60 * options.timeout_min}"
        )
    if options.tasks_per_node > 1:
        raise UserError(
            f"hydra.launcher.tasks_per_node={options.tasks_per_node}: a run starts its processes "
            "itself; leave it at 1 and pass hydra.sweeper.layout for several trainers"
        )


def check_ready() -> None:
    """Refuse to start where jobs cannot be submitted, or where killed jobs go unnoticed.

    Raises UserError with the remedy.
    """
    missing = [name for name in PACKAGES if lacks(name)]
    if missing:
        raise UserError(
            f"launcher=slurm: the package hydra-submitit-launcher is missing ({missing[0]}): "
            f"pip install 'rlhf-lab[slurm]', {OTHERWISE}"
        )
    absent = [name for name in COMMANDS if shutil.which(name) is None]
    if absent:
        raise UserError(
            f"launcher=slurm: {', '.join(absent)} not on PATH: start the sweep on a login node of "
            f"the cluster (module load slurm, on some), {OTHERWISE}"
        )
    kind = accounting(output_of(["scontrol", "show", "config"]))
    if not kind or kind.endswith("none"):
        raise UserError(
            f"launcher=slurm: this cluster has no accounting (AccountingStorageType={kind}), "
            "without which a killed job would be waited for for ever: have slurmdbd set up "
            f"(tests/slurm/cluster.sh shows how), {OTHERWISE}"
        )
    output_of(["sacct", "--allocations", "--noheader", "--starttime=now"])


def lacks(module: str) -> bool:
    """Whether a module cannot be found; imports its package, not itself."""
    try:
        return find_spec(module) is None
    except ModuleNotFoundError:
        return True


def output_of(command: list[str]) -> str:
    """The output of a Slurm command. Raises UserError if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UserError(
            f"launcher=slurm: `{' '.join(command)}` failed ({done.stderr.strip()}): wait until the "
            f"cluster answers, {OTHERWISE}"
        )
    return done.stdout


def accounting(config: str) -> str:
    """AccountingStorageType of `scontrol show config`, without brackets; empty if there is none."""
    for line in config.splitlines():
        key, _, value = line.partition("=")
        if key.strip() == "AccountingStorageType":
            return value.strip().strip("()").removeprefix("null")
    return ""


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
    check_options(options)
    check_ready()
    from hydra_plugins.hydra_submitit_launcher.submitit_launcher import SlurmLauncher as Plugin

    plugin = Plugin(**asdict(options))
    plugin.setup(**setting)
    call = Requeued(plugin, setting["task_function"], SHARE_TO_STOP * options.signal_delay_s)
    jobs = [submitted(job) for job in submit(options, call, arguments(job_overrides, first))]
    ids = parents(job.id for job in jobs)
    sys.stderr.write(f"submitted {len(jobs)} jobs to Slurm: {' '.join(ids)}\n")
    try:
        states = wait_for(jobs)
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

    python, srun, folder = shlex.quote(sys.executable), [], Path.cwd()
    if " " in options.container:
        python = f"{options.container} python"
    elif options.container:
        seen = [f"--container-mounts={folder}:{folder}", f"--container-workdir={folder}"]
        python, srun = "python", [f"--container-image={options.container}", *seen]
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
    result.update_parameters(**parameters, slurm_srun_args=srun)
    return result


def submit(options: SlurmOptions, call: Requeued, rows: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Submit one array. Raises UserError, with Slurm's own message, if Slurm refuses it."""
    from submitit.core.utils import FailedJobError

    try:
        found: list[Any] = executor(options).map_array(call, *zip(*rows, strict=True))
    except FailedJobError as error:
        raise UserError(
            f"launcher=slurm: sbatch refused the jobs ({error}): set hydra.launcher.partition, "
            "account, qos, gpus_per_node or timeout_min as the cluster asks for them (sinfo lists "
            "its partitions)"
        ) from error
    return found


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

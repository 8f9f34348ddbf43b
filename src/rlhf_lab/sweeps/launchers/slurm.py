"""The launcher for Slurm: each job of a sweep is a job of one array, with its own result."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, JobStatus

from rlhf_lab.sweeps.launchers.requeue import Stoppable
from rlhf_lab.sweeps.launchers.slurm_jobs import (
    JobsGoOn,
    LostJob,
    State,
    Submitted,
    described,
    parents,
    wait_for,
)
from rlhf_lab.sweeps.launchers.slurm_ready import SlurmOptions, check_options, check_ready
from rlhf_lab.types.errors import StopRequested, UserError

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
    """submitit's executor with the options of the jobs."""
    import submitit

    python, srun = container_words(options.container, Path.cwd())
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


def container_words(container: str, folder: Path) -> tuple[str, list[str]]:
    """The command for python, and srun's options. An image has its own python on its PATH, and
    sees the working folder, which the project's runs are below."""
    if not container:
        return shlex.quote(sys.executable), []
    if " " in container:
        return f"{container} python", []
    seen = [f"--container-mounts={folder}:{folder}", f"--container-workdir={folder}"]
    return "python", [f"--container-image={container}", *seen]


def submitted(job: Any) -> Submitted:
    """submitit's job as ours. The process of the first node writes the result."""
    first = job.task(0)
    return Submitted(job.job_id, first.paths.result_pickle, first.paths.stdout, first.paths.stderr)


def outcome(job: Submitted, state: State, overrides: Sequence[str]) -> JobReturn:
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


def result(job: Submitted, state: State) -> JobReturn:
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

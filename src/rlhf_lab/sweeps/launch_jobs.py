"""Run jobs, and the stages that they share, through Hydra's launcher."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn, JobStatus

from rlhf_lab.experiment.plugins import active
from rlhf_lab.runs.provenance import code_version
from rlhf_lab.sweeps.job import Job, state_of
from rlhf_lab.sweeps.job_table import JobTable
from rlhf_lab.sweeps.live_table import live_table
from rlhf_lab.sweeps.options import SweeperOptions
from rlhf_lab.sweeps.plan_jobs import Context, stage_jobs
from rlhf_lab.sweeps.preview import parallelism_of
from rlhf_lab.sweeps.run_job import JobRunner, JobStopped
from rlhf_lab.sweeps.stop_jobs import stop_on_signal


@dataclass(frozen=True)
class Ended:
    """How a job ended. problem: the error in one line, empty if there is none."""

    job: Job
    state: str
    problem: str = ""


def run_jobs(
    context: Context, jobs: Sequence[Job], folder: Path, options: SweeperOptions
) -> list[Ended]:
    """Make the stages that jobs need, then run the jobs. A signal is raised again when all of them
    have saved their state."""
    # Stages and runs must have the same code: JobRunner refuses a change in between.
    code = code_version()
    reruns = (options.rerun,)
    stages = launch(context, stage_jobs(context, jobs, folder), folder, reruns, code)
    failed = {one.job.stages: f"{one.problem} ({one.job.log})" for one in stages if one.problem}
    ready = [job for job in jobs if job.stages not in failed]
    without_stages = [
        Ended(job, "new", f"its stages failed: {failed[job.stages]}")
        for job in jobs
        if job.stages in failed
    ]
    return [*launch(context, ready, folder, reruns, code), *without_stages]


def launch(
    context: Context, jobs: Sequence[Job], folder: Path, reruns: tuple[str, ...], code: str
) -> list[Ended]:
    """Let Hydra's launcher run jobs, and show one table of all of them."""
    if not jobs:
        return []
    parallelism = parallelism_of(context)
    with stop_on_signal(folder, parallelism.is_here) as stop_files:
        launcher = Plugins.instance().instantiate_launcher(
            hydra_context=context.hydra,
            task_function=JobRunner(tuple(jobs), code, reruns, stop_files, active()),
            config=context.config,
        )
        with live_table(
            JobTable(jobs, parallelism.number), is_quiet=bool(context.config.output.quiet)
        ):
            returned = launcher.launch([job.overrides for job in jobs], initial_job_idx=0)
    return [ending_of(job, one) for job, one in zip(jobs, returned, strict=True)]


def ending_of(job: Job, returned: JobReturn) -> Ended:
    """How a job ended, from the launcher's result and the job's folder."""
    if returned.status is JobStatus.COMPLETED:
        return Ended(job, str(returned.return_value))
    error = returned._return_value
    if isinstance(error, JobStopped):
        return Ended(job, "stopped", str(error))
    return Ended(job, state_of(job).name, str(error) or type(error).__name__)

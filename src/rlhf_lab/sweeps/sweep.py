"""A sweep from its first word to its last: what is asked, what is done, what is left, what failed.

Whatever launcher is chosen runs the jobs; the stages that they share are jobs too, and come first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn, JobStatus
from omegaconf import OmegaConf, open_dict, read_write

from rlhf_lab.runs.folder import config_hash, make_folder
from rlhf_lab.runs.provenance import code_version
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.sweeps.board import Board, shown
from rlhf_lab.sweeps.grid import SEED, Grid, grid_of
from rlhf_lab.sweeps.job import CUT_OFF, TOLD, Job, State, state_of
from rlhf_lab.sweeps.jobs import Context, Planned, jobs_of, stage_jobs
from rlhf_lab.sweeps.launchers.multinode import layout_of, overrides_of
from rlhf_lab.sweeps.options import SweeperOptions
from rlhf_lab.sweeps.preview import show_jobs, side_by_side, tell_plan
from rlhf_lab.sweeps.record import Sweep, check_record, write_record
from rlhf_lab.sweeps.stopping import stoppable
from rlhf_lab.sweeps.task import JobStopped, JobTask
from rlhf_lab.sweeps.words import PRIMARY
from rlhf_lab.types.errors import JobsFailed, UserError

# Commands whose jobs are runs with a folder.
OF_RUNS = ("train", "pipeline")
# Overrides that do not make another question.
ASIDE = ("output.", "hydra.", "tracker", "checkpoint", "launcher")
# conf/config.yaml puts what no sweep of runs has a use for into a hidden folder.
UNNAMED = ".multirun"


@dataclass(frozen=True)
class Ended:
    """A job after a launch. problem: in one line, empty if there is none."""

    job: Job
    state: str
    problem: str = ""


def sweep(
    context: Context, params: Mapping[str, str], arguments: Sequence[str], options: SweeperOptions
) -> list[Ended]:
    """Run the jobs of a sweep's own keys and of overrides that are not done yet.

    Raises JobsFailed.
    """
    console = Console(quiet=False)
    context = replace(context, layout=layout_of(options.layout, context.config.hydra.launcher))
    parser = OverridesParser.create(config_loader=context.hydra.config_loader)
    grid = grid_of(params, [*arguments, *overrides_of(context.layout)], parser)
    folder = folder_of(context, grid)
    settle(context, folder)
    planned = jobs_of(context, grid, folder, console)
    code = code_version()
    record = record_of(context, grid, planned, code)
    check_record(folder, record, options.extend)
    states = {one.job.name: state_of(one.job) for one in planned}
    check_code(planned, states, code, options)
    todo = [one for one in planned if is_to_do(states[one.job.name], options)]
    console.print(f"sweep {folder}, code {code}")
    tell_plan(context, console, planned, states, todo)
    if options.dry:
        show_jobs(console, planned, states)
        return []
    make_folder(folder, "output.root")
    try:
        write_record(folder, record, options.extend)
    except OSError as error:
        raise UserError(
            f"{folder} cannot be written to ({error.strerror}): pass another output.root"
        ) from error
    ended = run_jobs(context, [one.job for one in todo], folder, options)
    return conclude(console, [one.job for one in planned], ended)


def folder_of(context: Context, grid: Grid) -> Path:
    """Where a sweep lives: named after its file, or after what it was asked for."""
    given = Path(str(context.config.hydra.sweep.dir))
    if UNNAMED not in given.parts:
        return given
    name = str(context.config.hydra.job.config_name)
    if name == PRIMARY:
        fixed = sorted(text for text in grid.fixed if not text.startswith(ASIDE))
        # The same question with more seeds.
        conditions = {key: values for key, values in grid.swept.items() if key != SEED}
        asked = {"command": context.command, "fixed": fixed, "swept": conditions}
        name = f"sweep-{config_hash(asked)[:8]}"
    return Path(str(context.config.output.root)) / name


def settle(context: Context, folder: Path) -> None:
    """Tell Hydra's launcher where the sweep lives."""
    with read_write(context.config), open_dict(context.config):
        context.config.hydra.sweep.dir = str(folder)
        context.config.hydra.sweep.subdir = "."


def record_of(context: Context, grid: Grid, planned: Sequence[Planned], code: str) -> Sweep:
    """What sweep.json keeps."""
    # Without the swept keys it need not be a config that a run could start with.
    cfg = context.hydra.config_loader.load_sweep_config(context.config, list(grid.fixed))
    shared: Any = OmegaConf.to_container(cfg, resolve=False)
    base = config_hash({key: shared[key] for key in shared if key not in (*TOLD, "hydra")})
    return Sweep(
        command=context.command,
        name=str(context.config.hydra.job.config_name),
        fixed=grid.fixed,
        swept=grid.swept,
        base=base,
        code=code,
        jobs={one.job.name: one.job.content for one in planned},
        folders={one.job.name: str(one.job.folder) for one in planned},
    )


def is_to_do(state: State, options: SweeperOptions) -> bool:
    """Whether a job in this state is started."""
    return state.name in ("new", *CUT_OFF) or state.name == options.rerun


def check_code(
    planned: Sequence[Planned], states: Mapping[str, State], code: str, options: SweeperOptions
) -> None:
    """Refuse to mix jobs that different code made."""
    others = [
        one.job
        for one in planned
        if states[one.job.name].name != "new" and not states[one.job.name].is_of(code)
    ]
    if others and options.other_code == "refuse":
        theirs = states[others[0].name].manifest.get("code")
        raise UserError(
            f"{len(others)} of {len(planned)} jobs were run by other code ({others[0].folder}: "
            f"{theirs}, now {code}): pass hydra.sweeper.other_code=keep to count them as they are, "
            "or another output.root to run all anew"
        )


def run_jobs(
    context: Context, jobs: Sequence[Job], folder: Path, options: SweeperOptions
) -> list[Ended]:
    """Make the stages that jobs wait for, then run the jobs. What interrupts it is raised again
    when all have saved their state."""
    # Of the stages and of the runs: what changes in between is refused.
    code = code_version()
    reruns = (options.rerun,)
    stages = launched(context, stage_jobs(context, jobs, folder), folder, reruns, code)
    lost = {one.job.stages: f"{one.problem} ({one.job.log})" for one in stages if one.problem}
    ready = [job for job in jobs if job.stages not in lost]
    missed = [
        Ended(job, "new", f"its stages failed: {lost[job.stages]}")
        for job in jobs
        if job.stages in lost
    ]
    return [*launched(context, ready, folder, reruns, code), *missed]


def launched(
    context: Context, jobs: Sequence[Job], folder: Path, reruns: tuple[str, ...], code: str
) -> list[Ended]:
    """Let Hydra's launcher run jobs, with one table of them all."""
    if not jobs:
        return []
    side = side_by_side(context)
    with stoppable(folder, side.is_here) as marks:
        launcher = Plugins.instance().instantiate_launcher(
            hydra_context=context.hydra,
            task_function=JobTask(tuple(jobs), code, reruns, marks),
            config=context.config,
        )
        with shown(Board(jobs, side.number), is_quiet=bool(context.config.output.quiet)):
            returned = launcher.launch([job.overrides for job in jobs], initial_job_idx=0)
    return [ended(job, one) for job, one in zip(jobs, returned, strict=True)]


def ended(job: Job, returned: JobReturn) -> Ended:
    """How a job ended, as its launcher and its folder tell it."""
    if returned.status is JobStatus.COMPLETED:
        return Ended(job, str(returned.return_value))
    error = returned._return_value
    if isinstance(error, JobStopped):
        return Ended(job, "stopped", str(error))
    return Ended(job, state_of(job).name, str(error) or type(error).__name__)


def conclude(console: Console, jobs: Sequence[Job], ended: Sequence[Ended]) -> list[Ended]:
    """Say what became of the sweep. Raises JobsFailed if a job failed, now or in an earlier try."""
    here = {one.job.name: one for one in ended}
    states = {job.name: state_of(job).name for job in jobs}
    finished = sum(state == "finished" for state in states.values())
    elsewhere = sum(one.state == "elsewhere" for one in ended)
    others = f"; {elsewhere} are another launcher's" if elsewhere else ""
    console.print(f"{finished} of {len(jobs)} jobs finished{others}")
    bad = [job for job in jobs if states[job.name] == "failed" or problem_of(here, job)]
    for job in bad:
        said = problem_of(here, job) or "failed before, and was not run again"
        console.print(f"  {job.name}: {said}\n    log {job.log}")
    if bad:
        again = any(states[job.name] == "failed" for job in bad)
        option = " with hydra.sweeper.rerun=failed (make sweep ... RERUN=failed)" if again else ""
        raise JobsFailed(
            f"{len(bad)} of {len(jobs)} jobs are not finished: the same command{option} goes on "
            "with them, from their checkpoints"
        )
    return list(ended)


def problem_of(ended: Mapping[str, Ended], job: Job) -> str:
    return ended[job.name].problem if job.name in ended else ""

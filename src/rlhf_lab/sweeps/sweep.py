"""Run jobs, and the stages that they share, through Hydra's launcher."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, get_type_hints

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn, JobStatus
from hydra.errors import ConfigCompositionException
from omegaconf import DictConfig, ListConfig, OmegaConf, open_dict, read_write

from rlhf_lab.experiment.config.config import Config, is_default
from rlhf_lab.experiment.config.plugins import active
from rlhf_lab.runs.child import safe_path
from rlhf_lab.runs.folder import make_folder
from rlhf_lab.runs.identity import RULE, hash_of
from rlhf_lab.runs.provenance import code_version
from rlhf_lab.runs.summaries import after_sweep, print_next
from rlhf_lab.runs.trackers.console import Console, counted
from rlhf_lab.sweeps.grid import Grid, check_choices, check_growth, grid_of
from rlhf_lab.sweeps.job import OUTPUT_NODES, RESUMABLE, Job, JobState, JobTable, state_of
from rlhf_lab.sweeps.job_progress import live_table
from rlhf_lab.sweeps.launchers.slurm import TARGET
from rlhf_lab.sweeps.launchers.slurm_cluster import check_submittable
from rlhf_lab.sweeps.launchers.slurm_script import layout_of
from rlhf_lab.sweeps.launchers.torchrun import generator_of
from rlhf_lab.sweeps.options import SweeperOptions
from rlhf_lab.sweeps.override_text import PRIMARY
from rlhf_lab.sweeps.plan_jobs import SweepContext, plan_jobs, stage_jobs
from rlhf_lab.sweeps.preview import parallelism_of, print_jobs, print_plan
from rlhf_lab.sweeps.run_job import JobRunner, JobStopped, stop_on_signal
from rlhf_lab.sweeps.sweep_file import SweepRecord, check_record, from_sweep, write_record
from rlhf_lab.types.errors import JobsFailed, UserError

# Commands whose jobs are runs with a folder.
OF_RUNS = ("train", "pipeline")
# Overrides that do not change the question of a sweep, and so not its folder.
ASIDE = ("output.", "hydra.", "tracker", "checkpoint", "launcher")
# The folder of Hydra's own sweeps in conf/config.yaml.
UNNAMED = ".multirun"


@dataclass(frozen=True)
class Ended:
    """How a job ended. problem: the error in one line, empty if there is none."""

    job: Job
    state: str
    problem: str = ""


def run_jobs(
    context: SweepContext, jobs: Sequence[Job], folder: Path, options: SweeperOptions
) -> list[Ended]:
    """Make the stages that jobs need, then run the jobs. A signal is raised again when all of them
    have saved their state."""
    if (launcher := context.config.hydra.launcher)._target_ == TARGET:
        check_submittable(launcher, len(jobs))
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
    context: SweepContext, jobs: Sequence[Job], folder: Path, reruns: tuple[str, ...], code: str
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
        is_quiet = bool(context.config.output.quiet)
        with live_table(JobTable(jobs, parallelism.number), is_quiet=is_quiet), safe_path():
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


def sweep(
    context: SweepContext,
    params: Mapping[str, str],
    arguments: Sequence[str],
    options: SweeperOptions,
) -> list[Ended]:
    """Run the jobs of a sweep's params and overrides that are not done yet.

    Raises JobsFailed.
    """
    console = Console(quiet=False)
    context = replace(context, layout=layout_of(options.layout, context.config.hydra.launcher))
    parser = OverridesParser.create(config_loader=context.hydra.config_loader)
    grid = grid_of(
        params, [*arguments, *(generator_of(context.layout) if context.layout else [])], parser
    )
    check_choices(params, grid, parser, context.hydra.config_loader)
    if str(context.config.hydra.job.config_name) != PRIMARY:
        check_growth(params, grid, parser, options, console)
    folder = folder_of(context, grid)
    set_folder(context, folder)
    jobs = plan_jobs(context, grid, folder, console)
    code = code_version()
    record = record_of(context, grid, jobs, code, folder)
    check_record(folder, record, options.extend)
    states = {job.name: state_of(job) for job in jobs}
    check_code(jobs, states, code, options)
    startable = ("new", *RESUMABLE, options.rerun)
    todo = [job for job in jobs if states[job.name].name in startable]
    console.print(f"sweep {folder}, code {code}")
    print_plan(context, console, jobs, states, todo)
    if options.dry:
        print_jobs(console, jobs, states)
        return []
    make_folder(folder, "output.root")
    try:
        write_record(folder, record, options.extend)
    except OSError as error:
        raise UserError(
            f"{folder} cannot be written to ({error.strerror}): pass another output.root"
        ) from error
    ended = run_jobs(context, todo, folder, options)
    conclude(console, jobs, ended)
    print_next(console, after_sweep(folder))
    return ended


def folder_of(context: SweepContext, grid: Grid) -> Path:
    """The sweep's folder, named after its file, or after the hash of its overrides."""
    configured = Path(str(context.config.hydra.sweep.dir)).expanduser()
    if UNNAMED not in configured.parts:
        return configured
    name = str(context.config.hydra.job.config_name)
    if name == PRIMARY:
        fixed = sorted(one for one in grid.fixed if not one.startswith(ASIDE))
        # More seeds are the same question.
        question = {"command": context.command, "fixed": fixed, "swept": grid.conditions}
        name = f"sweep-{hash_of(question)[:8]}"
    return Path(str(context.config.output.root)).expanduser() / name


def set_folder(context: SweepContext, folder: Path) -> None:
    """Set the sweep's folder in the config of Hydra's launcher."""
    with read_write(context.config), open_dict(context.config):
        context.config.hydra.sweep.dir = str(folder)
        context.config.hydra.sweep.subdir = "."


def record_of(
    context: SweepContext, grid: Grid, jobs: Sequence[Job], code: str, folder: Path
) -> SweepRecord:
    return SweepRecord(
        command=context.command,
        name=str(context.config.hydra.job.config_name),
        fixed=grid.fixed,
        swept=grid.swept,
        base=shared_hash(context, grid.fixed),
        code=code,
        jobs={job.name: job.content for job in jobs},
        folders={job.name: from_sweep(job.folder, folder) for job in jobs},
    )


def shared_hash(context: SweepContext, fixed: Sequence[str]) -> str:
    """The hash of the settings that all jobs share."""
    # Not checked: without the swept keys no run may be able to start with it.
    load = context.hydra.config_loader.load_sweep_config
    of_choices: list[str] = []
    try:
        cfg = load(context.config, list(fixed))
    except ConfigCompositionException:
        # Jobs compose with them: they set options of what is swept, such as algo.lam of algo=ppo.
        of_choices = [one for one in fixed if not composes(context, one)]
        cfg = load(context.config, [one for one in fixed if one not in of_choices])
    shared = changed_in(cfg, get_type_hints(Config))
    settings = {key: shared[key] for key in shared if key not in (*OUTPUT_NODES, "hydra")}
    return RULE + hash_of(settings | ({"of_choices": of_choices} if of_choices else {}))


def changed_in(node: DictConfig, hints: Mapping[str, Any], declared: Any = None) -> dict[str, Any]:
    """The values of a composed node, not resolved, that differ from the defaults of its schema:
    what `changed` is of a checked part, for a config that no run may be able to start with. hints:
    the declared classes of the nodes in it."""
    kind: Any = OmegaConf.get_type(node)
    columns = {one.name: one for one in fields(kind)} if is_dataclass(kind) else {}
    found: dict[str, Any] = {}
    for name in map(str, node):
        child: Any = node._get_node(name)
        if isinstance(child, DictConfig) and not child._is_none() and not child._is_missing():
            if inner := changed_in(child, {}, hints.get(name)):
                found[name] = inner
            continue
        is_list = isinstance(child, ListConfig) and not child._is_missing()
        value = OmegaConf.to_container(child, resolve=False) if is_list else child._value()
        is_kind = name == "name" and getattr(kind, "PART", None) is not declared
        if is_kind or name not in columns or not is_default(columns[name], value):
            found[name] = getattr(value, "value", value)
    return found


def composes(context: SweepContext, override: str) -> bool:
    """Whether the sweep's config has the key of an override."""
    try:
        context.hydra.config_loader.load_sweep_config(context.config, [override])
    except ConfigCompositionException:
        return False
    return True


def check_code(
    jobs: Sequence[Job], states: Mapping[str, JobState], code: str, options: SweeperOptions
) -> None:
    """Refuse to mix jobs of different versions of the code."""
    others = [
        job for job in jobs if states[job.name].name != "new" and not states[job.name].is_of(code)
    ]
    if others and options.other_code == "refuse":
        theirs = states[others[0].name].manifest.get("code")
        raise UserError(
            f"{len(others)} of {len(jobs)} jobs were run by other code ({others[0].folder}: "
            f"{theirs}, now {code}): pass hydra.sweeper.other_code=keep to count them as they are, "
            "or another output.root to run all anew"
        )


def conclude(console: Console, jobs: Sequence[Job], ended: Sequence[Ended]) -> None:
    """Print how the jobs ended. Raises JobsFailed if one failed, now or in an earlier launch."""
    here = {one.job.name: one for one in ended}
    states = {job.name: state_of(job).name for job in jobs}
    finished = sum(state == "finished" for state in states.values())
    elsewhere = sum(one.state == "elsewhere" for one in ended)
    others = f"; {elsewhere} are another launcher's" if elsewhere else ""
    console.print(f"{finished} of {counted(len(jobs), 'job')} finished{others}")
    bad = [job for job in jobs if states[job.name] == "failed" or problem_of(here, job)]
    for job in bad:
        problem = problem_of(here, job) or "failed before, and was not run again"
        console.print(f"  {job.name}: {problem}\n    log {job.log}")
    if bad:
        again = any(states[job.name] == "failed" for job in bad)
        option = " with hydra.sweeper.rerun=failed (make sweep ... RERUN=failed)" if again else ""
        raise JobsFailed(
            f"{len(bad)} of {len(jobs)} jobs are not finished: the same command{option} goes on "
            "with them, from their checkpoints"
        )


def problem_of(ended: Mapping[str, Ended], job: Job) -> str:
    return ended[job.name].problem if job.name in ended else ""

"""Make the jobs of a grid: every config is composed and checked before the first job starts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hydra.errors import HydraException
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from rlhf_lab.experiment.config.config import Config, plain
from rlhf_lab.experiment.config.layout import Layout
from rlhf_lab.experiment.rules.checks import check, require_readable_splits, require_working_parts
from rlhf_lab.experiment.rules.derived import num_devices, timing_settings
from rlhf_lab.experiment.rules.devices import check_trainers
from rlhf_lab.runs.identity import hash_of
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.sweeps.composition import Composer
from rlhf_lab.sweeps.grid import SEEDS, Grid, name_of
from rlhf_lab.sweeps.job import Job, content_of
from rlhf_lab.sweeps.launchers.slurm_script import script_of
from rlhf_lab.sweeps.override_text import primary_config, quoted
from rlhf_lab.types.errors import UserError

LOGS = "logs"
STAGES = "stages"


@dataclass(frozen=True)
class SweepContext:
    """What Hydra passes to a sweeper, and the layout of its jobs."""

    hydra: HydraContext
    task_function: TaskFunction
    config: DictConfig
    command: str
    layout: Layout | None = None


@contextmanager
def compose_config(context: SweepContext, overrides: Sequence[str]) -> Iterator[Config]:
    """The config of overrides; while the block runs, `hydra:` in it refers to the job."""
    with Composer(context.hydra.config_loader, context.config).config(overrides) as config:
        yield config


def plan_jobs(context: SweepContext, grid: Grid, folder: Path, console: Console) -> list[Job]:
    """Every job of a grid. Raises UserError for a job that could not start, and for two that would
    share a folder."""
    points = list(grid.points())
    every: list[Job] = []
    checked: set[str] = set()
    names: dict[Path, str] = {}
    composer = Composer(context.hydra.config_loader, context.config)
    with console.stage("checking the jobs", total=len(points)) as bar:
        for point in points:
            job = plan_job(context, grid, point, folder, checked, composer)
            if other := names.get(job.folder):
                raise UserError(
                    f"{other} and {job.name} would both write to {job.folder}: leave output.dir "
                    "out, or name every swept key in it"
                )
            names[job.folder] = job.name
            every.append(job)
            bar.advance(1)
    return every


def plan_job(
    context: SweepContext,
    grid: Grid,
    point: Mapping[str, str],
    folder: Path,
    checked: set[str],
    composer: Composer,
) -> Job:
    """One job. checked: hashes of the conditions and data that are checked already."""
    name = name_of(point)
    overrides = [*grid.fixed, *(f"{key}={value}" for key, value in point.items())]
    try:
        with composer.config(overrides) as config:
            # No check depends on the seed.
            condition = hash_of(plain(replace(config, seed=0)))
            if condition not in checked:
                check_config(context, config, checked)
                checked.add(condition)
            return job_from_config(context, point, overrides, config, folder)
    except (UserError, HydraException) as error:
        error.add_note(f"in the job {name}: {' '.join(overrides)}")
        raise


def check_config(context: SweepContext, config: Config, checked: set[str]) -> None:
    """Refuse a config that no run could start with. checked: hashes of data that was read."""
    check(config)
    if context.layout:
        check_trainers(config, context.layout.trainers)
    data = hash_of({key: plain(getattr(config, key)) for key in ("task", "reward", "judge")})
    if data not in checked:
        require_readable_splits(config)
        require_working_parts(config)
        checked.add(data)


def job_from_config(
    context: SweepContext,
    point: Mapping[str, str],
    overrides: Sequence[str],
    config: Config,
    folder: Path,
) -> Job:
    from rlhf_lab.experiment.artifacts.prepare import (
        Artifacts,  # with torch: a refused sweep loads none
    )

    name = name_of(point)
    run_folder = Path(config.output.dir) if config.output.dir else folder / name
    log = folder / LOGS / f"{name}.log"
    own = [f"output.dir={quoted(run_folder)}", f"output.log={quoted(log)}", "output.resume=true"]
    # The run's trackers record its sweep and its condition.
    condition = ",".join(f"{key}={value}" for key, value in point.items() if key not in SEEDS)
    labels = [f"tracker.sweep={quoted(folder.name)}", f"tracker.condition={quoted(condition)}"]
    words = (*command_words(context, context.command, overrides), *own, *labels)
    facts = {key: getattr(config, key).name for key in ("task", "model", "algo", "mode")}
    return Job(
        name=name,
        words=words,
        overrides=(*overrides, f"hydra.sweep.dir={quoted(folder)}", "hydra.sweep.subdir=."),
        folder=run_folder,
        log=log,
        lock=run_folder.with_name(f".{run_folder.name}.lock"),
        content=content_of(config),
        stages=tuple(Artifacts(config, Console(quiet=True)).folders()),
        rounds=config.run.num_rounds,
        devices=num_devices(config),
        threads=max(config.engine.threads, config.generator.threads),
        script=script_of(
            context.layout, words, context.config.hydra.launcher, config.generator.num_gpus
        ),
        facts=facts,
        settings=timing_settings(config),
        config=config,
    )


def command_words(context: SweepContext, command: str, overrides: Sequence[str]) -> list[str]:
    """The arguments of `rlhf-lab` that run a command with the config of a job."""
    # Without hydra.mode=RUN, the sweep's own config would start the sweep again.
    primary = primary_config(context.config.hydra)
    return [command, *primary, *(["hydra.mode=RUN"] if primary else []), *overrides]


def stage_jobs(context: SweepContext, jobs: Sequence[Job], folder: Path) -> list[Job]:
    """A job for each set of missing stages. Sets that share a stage are far apart in the order, so
    that jobs which run side by side seldom wait for each other."""
    first: dict[tuple[Path, ...], Job] = {}
    for job in jobs:
        if not all(stage.exists() for stage in job.stages):
            first.setdefault(job.stages, job)
    every = [
        Job(
            name=f"stages of {job.name}",
            words=tuple(
                command_words(
                    context,
                    STAGES,
                    [text for text in job.overrides if not text.startswith("hydra.")],
                )
            ),
            overrides=job.overrides,
            folder=job.folder,
            log=folder / LOGS / STAGES / f"{job.name}.log",
            lock=job.lock,
            content="",
            stages=job.stages,
            threads=job.threads,
        )
        for job in first.values()
    ]
    shared: dict[Path, int] = {}
    ranks = []
    for job in every:
        ranks.append(shared.get(job.stages[0], 0))
        shared[job.stages[0]] = ranks[-1] + 1
    return [job for _, job in sorted(zip(ranks, every, strict=True), key=lambda pair: pair[0])]


class ContextSweeper(Sweeper):  # type: ignore[misc]
    """Abstract, so that Hydra does not register it."""

    context: SweepContext

    def __init__(self, params: Mapping[str, Any] | None) -> None:
        self.params = dict(params or {})

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        command = getattr(task_function, "command", "")
        self.context = SweepContext(hydra_context, task_function, config, command)

"""From overrides to jobs: composed and checked, every one of them, before the first starts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hydra.errors import HydraException
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from rlhf_lab.experiment.checks import check, require_readable_splits, require_working_rewards
from rlhf_lab.experiment.checks_devices import check_trainers
from rlhf_lab.experiment.config import Config, plain
from rlhf_lab.experiment.derived import num_devices, timing_settings
from rlhf_lab.experiment.prepare import Artifacts
from rlhf_lab.runs.folder import config_hash
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.sweeps.composition import Composer
from rlhf_lab.sweeps.forecast import Wanted
from rlhf_lab.sweeps.grid import SEED, Grid, name_of
from rlhf_lab.sweeps.job import Job, content_of
from rlhf_lab.sweeps.launchers.layout import Layout
from rlhf_lab.sweeps.launchers.multinode import script_of
from rlhf_lab.sweeps.words import primary_config, quoted
from rlhf_lab.types.errors import UserError

LOGS = "logs"
STAGES = "stages"


@dataclass(frozen=True)
class Context:
    """What Hydra tells a sweeper."""

    hydra: HydraContext
    task_function: TaskFunction
    config: DictConfig
    command: str
    layout: Layout | None = None


@dataclass(frozen=True)
class Planned:
    """A job, and what a forecast needs of it."""

    job: Job
    wanted: Wanted


@contextmanager
def composed(context: Context, overrides: Sequence[str]) -> Iterator[Config]:
    """The config of overrides; `hydra:` in it is of the job while the block runs."""
    with Composer(context.hydra.config_loader, context.config).config(overrides) as config:
        yield config


def jobs_of(context: Context, grid: Grid, folder: Path, console: Console) -> list[Planned]:
    """Every job of a grid. Raises UserError, with the job, for one that could not start, and for
    two that would share a folder."""
    points = list(grid.points())
    found: list[Planned] = []
    checked: set[str] = set()
    places: dict[Path, str] = {}
    composer = Composer(context.hydra.config_loader, context.config)
    with console.stage("checking the jobs", total=len(points)) as bar:
        for point in points:
            planned = planned_job(context, grid, point, folder, checked, composer)
            job = planned.job
            if other := places.get(job.folder):
                raise UserError(
                    f"{other} and {job.name} would both write to {job.folder}: leave output.dir "
                    "out, or name every swept key in it"
                )
            places[job.folder] = job.name
            found.append(planned)
            bar.advance(1)
    return found


def planned_job(
    context: Context,
    grid: Grid,
    point: Mapping[str, str],
    folder: Path,
    checked: set[str],
    composer: Composer,
) -> Planned:
    """One job. checked: conditions and data that were looked at already, which jobs share."""
    name = name_of(point)
    overrides = [*grid.fixed, *(f"{key}={value}" for key, value in point.items())]
    try:
        with composer.config(overrides) as config:
            # Nothing that is checked follows from the seed.
            condition = config_hash(plain(replace(config, seed=0)))
            if condition not in checked:
                refuse_bad(context, config, checked)
                checked.add(condition)
            return of_config(context, point, overrides, config, folder)
    except (UserError, HydraException) as error:
        error.add_note(f"in the job {name}: {' '.join(overrides)}")
        raise


def refuse_bad(context: Context, config: Config, checked: set[str]) -> None:
    """Raise UserError for a config that no run could start with. checked: data that was read."""
    check(config)
    if context.layout:
        check_trainers(config, context.layout.trainers)
    data = config_hash({"task": plain(config.task), "reward": plain(config.reward)})
    if data not in checked:
        require_readable_splits(config)
        require_working_rewards(config)
        checked.add(data)


def of_config(
    context: Context,
    point: Mapping[str, str],
    overrides: Sequence[str],
    config: Config,
    folder: Path,
) -> Planned:
    """The job of a config that was checked."""
    name = name_of(point)
    place = Path(config.output.dir) if config.output.dir else folder / name
    log = folder / LOGS / f"{name}.log"
    own = [f"output.dir={quoted(place)}", f"output.log={quoted(log)}", "output.resume=true"]
    # A tracker that the run has tells what the run is a job of.
    condition = ",".join(f"{key}={value}" for key, value in point.items() if key != SEED)
    told = [f"tracker.sweep={quoted(folder.name)}", f"tracker.condition={quoted(condition)}"]
    given = (*words(context, context.command, overrides), *own, *told)
    job = Job(
        name=name,
        words=given,
        overrides=(*overrides, f"hydra.sweep.dir={quoted(folder)}", "hydra.sweep.subdir=."),
        folder=place,
        log=log,
        lock=place.with_name(f".{place.name}.lock"),
        content=content_of(config),
        stages=tuple(Artifacts(config, Console(quiet=True)).folders()),
        rounds=config.run.num_rounds,
        devices=num_devices(config),
        threads=max(config.engine.threads, config.generator.threads),
        script=script_of(context.layout, given, context.config.hydra.launcher),
    )
    facts: dict[str, Any] = {
        key: getattr(config, key).name for key in ("task", "model", "algo", "mode")
    }
    return Planned(job, Wanted(facts, timing_settings(config), job.devices))


def words(context: Context, command: str, overrides: Sequence[str]) -> list[str]:
    """What `rlhf-lab` takes to run a command with the config of a job."""
    # A sweep's file would start the sweep again.
    primary = primary_config(context.config.hydra)
    return [command, *primary, *(["hydra.mode=RUN"] if primary else []), *overrides]


def stage_jobs(context: Context, jobs: Sequence[Job], folder: Path) -> list[Job]:
    """A job for each set of products that jobs wait for. Sets that share a product are kept apart,
    so that those which run side by side seldom wait for each other."""
    first: dict[tuple[Path, ...], Job] = {}
    for job in jobs:
        if not all(stage.exists() for stage in job.stages):
            first.setdefault(job.stages, job)
    made = [
        Job(
            name=f"stages of {job.name}",
            words=tuple(words(context, STAGES, own_overrides(job))),
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
    for job in made:
        ranks.append(shared.get(job.stages[0], 0))
        shared[job.stages[0]] = ranks[-1] + 1
    return [job for _, job in sorted(zip(ranks, made, strict=True), key=lambda pair: pair[0])]


def own_overrides(job: Job) -> list[str]:
    """A job's overrides without those of the sweep."""
    return [text for text in job.overrides if not text.startswith("hydra.")]

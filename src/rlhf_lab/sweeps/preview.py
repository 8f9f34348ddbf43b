"""Print what a sweep will do, before it starts, with the seconds and bytes that finished runs like
its jobs predict.
"""

from __future__ import annotations

import shlex
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from pathlib import Path
from typing import Any

from rlhf_lab.experiment.planning import planner
from rlhf_lab.experiment.planning.settings import Settings
from rlhf_lab.experiment.planning.timing import Measurement, measured
from rlhf_lab.experiment.rules.derived import num_visible
from rlhf_lab.runs.manifest import last_start
from rlhf_lab.runs.provenance import usable_cores
from rlhf_lab.runs.summaries import RunSummary, list_runs
from rlhf_lab.runs.trackers.console import Console, counted, seconds_text
from rlhf_lab.sweeps.job import Job, JobState
from rlhf_lab.sweeps.plan_jobs import SweepContext
from rlhf_lab.types.errors import UserError

# The settings by which runs are like a job: NEEDED of them at least, from the front.
ALIKE = ("task", "model", "algo", "mode")
NEEDED = 2


@dataclass(frozen=True)
class Cost:
    """The predicted cost of a job. source: the run that it is predicted from."""

    seconds: float
    bytes: int
    source: Path


class PastRuns:
    """The finished runs below a folder, from which costs are predicted."""

    def __init__(self, root: Path) -> None:
        found = list_runs(root) if root.is_dir() else []
        self._runs = [run for run in found if run.state == "finished"]
        self._measured: dict[Path, Measurement | None] = {}
        self._costs: dict[str, Cost | None] = {}

    def cost(self, job: Job) -> Cost | None:
        """The cost of a job; None without a measured run of its task and model. Jobs with equal
        settings cost the same."""
        key = repr((dict(job.facts), dict(job.settings)))
        if key not in self._costs:
            self._costs[key] = self._cost(job)
        return self._costs[key]

    def _cost(self, job: Job) -> Cost | None:
        for run in sorted(self._runs, key=lambda run: similarity(run, job), reverse=True):
            if similarity(run, job) < NEEDED:
                return None
            measurement = self._measurement(run.folder)
            if measurement is not None:
                return cost_from(run, measurement, job)
        return None

    def _measurement(self, folder: Path) -> Measurement | None:
        """None if other settings cannot be predicted from the run."""
        if folder not in self._measured:
            try:
                self._measured[folder] = measured(folder)
            except UserError:
                self._measured[folder] = None
        return self._measured[folder]


def similarity(run: RunSummary, job: Job) -> int:
    """How many settings of ALIKE the run shares with the job, counted from the front."""
    shared = [run.manifest.get(key) == job.facts[key] for key in ALIKE]
    return shared.index(False) if False in shared else len(shared)


def cost_from(run: RunSummary, measurement: Measurement, job: Job) -> Cost:
    """Predict the job's rounds from those of the run, and add the run's time outside of rounds."""
    settings = Settings(**{field.name: job.settings[field.name] for field in fields(Settings)})
    outside = max(0.0, seconds_of(run.manifest) - measurement.wall)
    wall = planner.predict(measurement, settings).wall
    files = (path for path in run.folder.rglob("*") if path.is_file())
    return Cost(wall + outside, sum(path.stat().st_size for path in files), run.folder)


def seconds_of(manifest: Mapping[str, Any]) -> float:
    """From a run's last start to its end; 0 if one of them is unknown."""
    if not {"started", "ended"} <= manifest.keys():
        return 0.0
    times = (last_start(manifest), manifest["ended"])
    begun, ended = (datetime.fromisoformat(text) for text in times)
    return (ended - begun).total_seconds()


@dataclass(frozen=True)
class SweepCost:
    """The cost of several jobs: seconds one after the other, device-seconds, bytes on disk.
    unknown: jobs without a prediction. sources: runs that were measured."""

    seconds: float
    device_seconds: float
    bytes: int
    unknown: int
    sources: int


def predict_cost(jobs: Sequence[Job], rates: PastRuns) -> SweepCost:
    """The sums over the jobs with a prediction."""
    costs = [(job, rates.cost(job)) for job in jobs]
    known = [(job, cost) for job, cost in costs if cost is not None]
    return SweepCost(
        seconds=sum(cost.seconds for _, cost in known),
        device_seconds=sum(cost.seconds * job.devices for job, cost in known),
        bytes=sum(cost.bytes for _, cost in known),
        unknown=len(costs) - len(known),
        sources=len({cost.source for _, cost in known}),
    )


@dataclass(frozen=True)
class Parallelism:
    """How many jobs run side by side, and whether they share this machine."""

    number: int
    is_here: bool


def parallelism_of(context: SweepContext) -> Parallelism:
    """The parallelism that the launcher's options set."""
    launcher = context.config.hydra.launcher
    if queue := launcher.get("array_parallelism"):
        return Parallelism(int(queue), is_here=False)
    number = int(launcher.get("n_jobs") or 1)
    # As joblib counts: -1 are all cores, -2 all but one.
    return Parallelism(number if number > 0 else max(1, usable_cores() + 1 + number), is_here=True)


def print_plan(
    context: SweepContext,
    console: Console,
    planned: Sequence[Job],
    states: Mapping[str, JobState],
    todo: Sequence[Job],
) -> None:
    """Print how many jobs there are to run, and their predicted cost."""
    done = Counter(state.name for state in states.values() if state.name != "new")
    before = ", ".join(f"{number} {name}" for name, number in sorted(done.items()))
    console.print(
        f"{counted(len(planned), 'job')}, {len(todo)} to run{f' ({before})' if before else ''}"
    )
    if not todo:
        return
    stages = {stage for job in todo for stage in job.stages if not stage.exists()}
    if stages:
        kinds = Counter(stage.parent.name for stage in stages)
        listed = ", ".join(f"{number} {kind}" for kind, number in kinds.items())
        console.print(f"stages to make first, not in the prediction: {listed}")
    root, parallelism = Path(context.config.output.root), parallelism_of(context)
    cost = predict_cost(todo, PastRuns(root))
    console.print(forecast_text(cost, len(todo), parallelism.number))
    for warning in warnings(cost, todo, parallelism, root):
        console.print(warning)


def forecast_text(cost: SweepCost, number: int, side: int) -> str:
    known = number - cost.unknown
    if not known:
        return (
            "time and disk: unknown, since no finished run of this task and model is below "
            f"output.root; {side} at a time"
        )
    rest = f"; unknown for the other {cost.unknown}" if cost.unknown else ""
    whole = seconds_text(cost.seconds / min(side, known))
    return (
        f"predicted from {cost.sources} measured: {whole} with {side} at a time, "
        f"{cost.device_seconds / 3600:.2f} device-hours, {cost.bytes / 1e6:.0f} MB of disk"
        f"{f', for {known} jobs' if cost.unknown else ''}{rest}"
    )


def warnings(
    cost: SweepCost, todo: Sequence[Job], parallelism: Parallelism, root: Path
) -> list[str]:
    """Warn about jobs that would slow each other down, about idle cores, and about a full disk."""
    lines = []
    # Where there are GPUs, a job's devices are not cores.
    if parallelism.is_here and not num_visible():
        lines += core_warnings(parallelism.number, max(job.devices for job in todo), len(todo))
    disk = next(path for path in (root, *root.absolute().parents) if path.exists())
    if cost.bytes > (free := shutil.disk_usage(disk).free):
        lines.append(f"{disk} has {free / 1e6:.0f} MB free: pass another output.root, or make room")
    return lines


def core_warnings(number: int, widest: int, num_jobs: int) -> list[str]:
    """Warn if `number` jobs at a time, each of up to `widest` cores, need more cores than this
    machine has, or leave cores idle that further jobs could use."""
    cores = usable_cores()
    if number > 1 and number * widest > cores:
        return [
            f"{number} jobs of up to {widest} cores on {cores} cores slow each other down: lower "
            "hydra.launcher.n_jobs, or the threads of the jobs"
        ]
    if (fitting := min(cores // widest, num_jobs)) > number:
        return [
            f"{number} at a time use {number * widest} of {cores} cores: launcher=joblib "
            f"hydra.launcher.n_jobs={fitting} runs {fitting} at a time"
        ]
    return []


def print_jobs(console: Console, planned: Sequence[Job], states: Mapping[str, JobState]) -> None:
    for job in planned:
        console.print(f"{job.name} [{states[job.name].name}]\n  rlhf-lab {shlex.join(job.words)}")

"""Print what a sweep will do, before it starts."""

from __future__ import annotations

import shlex
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rlhf_lab.experiment.generator_devices import num_visible
from rlhf_lab.runs.provenance import usable_cores
from rlhf_lab.runs.trackers.console import Console, counted, seconds_text
from rlhf_lab.sweeps.job import Job, State
from rlhf_lab.sweeps.plan_jobs import Context
from rlhf_lab.sweeps.sweep_cost import PastRuns, SweepCost, predict_cost


@dataclass(frozen=True)
class Parallelism:
    """How many jobs run side by side, and whether they share this machine."""

    number: int
    is_here: bool


def parallelism_of(context: Context) -> Parallelism:
    """The parallelism that the launcher's options set."""
    launcher = context.config.hydra.launcher
    if queue := launcher.get("array_parallelism"):
        return Parallelism(int(queue), is_here=False)
    number = int(launcher.get("n_jobs") or 1)
    # As joblib counts: -1 are all cores, -2 all but one.
    return Parallelism(number if number > 0 else max(1, usable_cores() + 1 + number), is_here=True)


def print_plan(
    context: Context,
    console: Console,
    planned: Sequence[Job],
    states: Mapping[str, State],
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
    """The predicted cost in a sentence."""
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


def print_jobs(console: Console, planned: Sequence[Job], states: Mapping[str, State]) -> None:
    """All jobs, with the command of each."""
    for job in planned:
        console.print(f"{job.name} [{states[job.name].name}]\n  rlhf-lab {shlex.join(job.words)}")

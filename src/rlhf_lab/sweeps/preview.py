"""What a sweep says before it starts."""

from __future__ import annotations

import shlex
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rlhf_lab.runs.provenance import usable_cores
from rlhf_lab.runs.trackers.console import Console, seconds_text
from rlhf_lab.sweeps.forecast import Forecast, Rates, forecast
from rlhf_lab.sweeps.job import State
from rlhf_lab.sweeps.jobs import Context, Planned


@dataclass(frozen=True)
class Side:
    """How many jobs run side by side, and whether they share this machine."""

    number: int
    is_here: bool


def side_by_side(context: Context) -> Side:
    """What the launcher's options say."""
    launcher = context.config.hydra.launcher
    if queue := launcher.get("array_parallelism"):
        return Side(int(queue), is_here=False)
    number = int(launcher.get("n_jobs") or 1)
    # As joblib counts: -1 are all cores, -2 all but one.
    return Side(number if number > 0 else max(1, usable_cores() + 1 + number), is_here=True)


def tell_plan(
    context: Context,
    console: Console,
    planned: Sequence[Planned],
    states: Mapping[str, State],
    todo: Sequence[Planned],
) -> None:
    """Say what there is to do, and what it will take."""
    done = Counter(state.name for state in states.values() if state.name != "new")
    before = ", ".join(f"{number} {name}" for name, number in sorted(done.items()))
    console.print(f"{len(planned)} jobs, {len(todo)} to run{f' ({before})' if before else ''}")
    if not todo:
        return
    stages = {stage for one in todo for stage in one.job.stages if not stage.exists()}
    if stages:
        kinds = Counter(stage.parent.name for stage in stages)
        listed = ", ".join(f"{number} {kind}" for kind, number in kinds.items())
        console.print(f"stages to make first, in no prediction: {listed}")
    root, side = Path(context.config.output.root), side_by_side(context)
    found = forecast([one.wanted for one in todo], Rates(root))
    console.print(told(found, len(todo), side.number))
    for warning in warnings(found, todo, side, root):
        console.print(warning)


def told(found: Forecast, number: int, side: int) -> str:
    """The forecast in a sentence."""
    known = number - found.unknown
    if not known:
        return (
            "time and disk: unknown, since no finished run of this task and model is below "
            f"output.root; {side} at a time"
        )
    rest = f"; nothing is known of the other {found.unknown}" if found.unknown else ""
    whole = seconds_text(found.seconds / min(side, known))
    return (
        f"predicted from {found.sources} measured: {whole} with {side} at a time, "
        f"{found.device_seconds / 3600:.2f} device-hours, {found.bytes / 1e6:.0f} MB of disk"
        f"{f', for {known} jobs' if found.unknown else ''}{rest}"
    )


def warnings(found: Forecast, todo: Sequence[Planned], side: Side, root: Path) -> list[str]:
    """What is not refused, and yet will disappoint."""
    lines = []
    widest = max(one.job.devices for one in todo)
    if side.is_here and side.number > 1 and side.number * widest > usable_cores():
        lines.append(
            f"{side.number} jobs of up to {widest} cores on {usable_cores()} cores will slow each "
            "other down: lower hydra.launcher.n_jobs, or the threads of the jobs"
        )
    disk = next(path for path in (root, *root.absolute().parents) if path.exists())
    if found.bytes > (free := shutil.disk_usage(disk).free):
        lines.append(f"{disk} has {free / 1e6:.0f} MB free: pass another output.root, or make room")
    return lines


def show_jobs(console: Console, planned: Sequence[Planned], states: Mapping[str, State]) -> None:
    """All jobs, with the command of each."""
    for one in planned:
        job = one.job
        console.print(f"{job.name} [{states[job.name].name}]\n  rlhf-lab {shlex.join(job.words)}")

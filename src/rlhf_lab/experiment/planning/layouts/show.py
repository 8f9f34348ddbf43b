"""What `rlhf-lab plan --gpu` prints: a table of layouts and the commands of the best."""

from __future__ import annotations

from collections.abc import Sequence

from rlhf_lab.experiment.layout import Layout
from rlhf_lab.experiment.planning.forecast import size
from rlhf_lab.experiment.planning.layouts.choice import Choice
from rlhf_lab.experiment.planning.layouts.gpus import Gpu
from rlhf_lab.experiment.planning.layouts.search import (
    FILLED,
    Fixed,
    Plan,
    best_of,
    ranked,
)
from rlhf_lab.experiment.planning.layouts.workload import Workload
from rlhf_lab.experiment.planning.overlap_advice import duration
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.errors import UserError

COLUMNS = (
    "layout",
    "engine",
    "dtype",
    "micro_tokens",
    "recompute",
    "tp",
    "GB trainer",
    "GB generator",
    "generate",
    "train",
    "round",
    "trainer waits",
    "run h",
    "device h",
)
NARROW = ("recompute", "tp", "dtype", "engine", "generate", "train")
ASSUMED = (
    "predicted from sizes, not measured: products at 40% (training) and 50% (reading) of what the "
    "GPU sustains, lengths as in the last line"
)
HOUR = 3600


def show_layouts(
    layouts: Sequence[Layout],
    work: Workload,
    gpu: Gpu,
    fixed: Fixed,
    most: int,
    overrides: Sequence[str],
    console: Console,
) -> list[Plan]:
    """Print the best layouts and their commands. Returns all that fit, the fastest first. Raises
    UserError where none fits."""
    plans = ranked(layouts, work, gpu, fixed)
    if not plans:
        raise UserError(nothing_fits(layouts, work, gpu, fixed))
    title = f"{len(plans)} of {len(layouts)} layouts fit on {gpu.name} ({size(gpu.memory)} each)"
    console.table(title, COLUMNS, [cells(plan, work) for plan in plans[:most]], NARROW)
    console.print(f"  {ASSUMED}")
    console.print(
        f"  {work.lengths} in the mean, {work.rows} samples a round, {work.num_rounds} rounds, "
        f"mode.max_staleness={work.staleness}"
    )
    fastest = plans[0]
    cheapest = min(plans, key=lambda plan: plan.device_seconds)
    console.print(f"  fastest: {command(fastest.choice, overrides)}")
    if cheapest is not fastest:
        console.print(f"  fewest device-hours: {command(cheapest.choice, overrides)}")
    return plans


def cells(plan: Plan, work: Workload) -> list[str]:
    """A row of the table; memory in GB, seconds of a round, hours of the run."""
    choice, seconds, memory = plan.choice, plan.seconds, plan.memory
    hours = seconds.whole * work.num_rounds / HOUR
    return [
        str(choice.layout),
        choice.engine,
        choice.dtype,
        str(choice.micro_tokens),
        "yes" if choice.checkpointing else "no",
        str(choice.tensor_parallel),
        f"{memory.trainer / 1e9:.0f}",
        f"{memory.generator / 1e9:.0f}" if choice.is_apart else "-",
        duration(seconds.generate + seconds.score),
        duration(seconds.train),
        duration(seconds.whole),
        f"{seconds.trainer_wait:.0%}",
        f"{hours:.3g}",
        f"{hours * choice.devices:.3g}",
    ]


def command(choice: Choice, overrides: Sequence[str]) -> str:
    """The command that starts a run so."""
    own = [text for text in choice.overrides if text.split("=")[0] not in keys(overrides)]
    words = [*overrides, *own]
    if choice.devices == 1:
        return " ".join(["rlhf-lab train", *words])
    return " ".join(["rlhf-lab launch", f"layout={choice.layout}", *words])


def keys(overrides: Sequence[str]) -> set[str]:
    return {text.partition("=")[0] for text in overrides}


def nothing_fits(layouts: Sequence[Layout], work: Workload, gpu: Gpu, fixed: Fixed) -> str:
    """Why no layout fits, by the one that needs least."""
    smallest = min(
        (best_of(layout, work, gpu, fixed)[1] for layout in layouts),
        key=lambda plan: plan.memory.most,
    )
    memory = smallest.memory
    return (
        f"no layout of these devices fits on {gpu.name} ({size(gpu.memory)}, of which "
        f"{FILLED:.0%} are planned with): layout={smallest.choice.layout} needs least, "
        f"{size(memory.trainer)} for a trainer and {size(memory.generator)} for a generator; pass "
        "more --devices or --nodes, a smaller model, or model.lora_rank=16"
    )

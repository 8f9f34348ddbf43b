"""Search of the fastest layout that fits, and how it is shown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from rlhf_lab.experiment.config.layout import Layout
from rlhf_lab.experiment.planning.forecast import size
from rlhf_lab.experiment.planning.layouts.choice import Choice, Workload
from rlhf_lab.experiment.planning.layouts.costs import (
    READING_SHARE,
    TRAINING_SHARE,
    DeviceMemory,
    RoundSeconds,
    memory_of,
    seconds_of,
)
from rlhf_lab.experiment.planning.layouts.gpus import Gpu
from rlhf_lab.experiment.planning.overlap_advice import duration
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.errors import UserError

# The share of a device's memory that a prediction may fill.
FILLED = 0.92
MICRO_TOKENS = (4096, 8192, 16384, 32768, 65536)
TENSOR_PARALLEL = (1, 2, 4, 8)
# Settings by their key, as texts of the command line.
Fixed = Mapping[str, str]
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
    "weights",
    "round",
    "trainer waits",
    "run h",
    "device h",
)
NARROW = ("recompute", "tp", "dtype", "engine", "generate", "train", "weights")
ASSUMED = (
    f"predicted from sizes, not measured: products at {TRAINING_SHARE:.0%} (training) and "
    f"{READING_SHARE:.0%} (reading) of what the GPU sustains, lengths as in the last line"
)
HOUR = 3600


@dataclass(frozen=True)
class Plan:
    """A choice with what it takes."""

    choice: Choice
    memory: DeviceMemory
    seconds: RoundSeconds

    @property
    def device_seconds(self) -> float:
        """Seconds of a round, times devices."""
        return self.choice.devices * self.seconds.whole

    def fits(self, gpu: Gpu) -> bool:
        return self.memory.most <= FILLED * gpu.memory and self.memory.kv_rows >= 1


def planned(work: Workload, choice: Choice, gpu: Gpu) -> Plan:
    memory = memory_of(work, choice, gpu)
    return Plan(choice, memory, seconds_of(work, choice, gpu, memory.kv_rows))


def layouts_of(nodes: int, devices: int) -> Iterator[Layout]:
    """Every division of all devices into trainers and generators; without generators of their own,
    the trainers generate in their own time."""
    there = nodes * devices
    for generators in range(there):
        yield Layout(nodes, devices, there - generators, generators)


def choices_of(layout: Layout, work: Workload, fixed: Fixed) -> Iterator[Choice]:
    """Every combination of settings for a layout; a fixed key keeps its value."""
    engines = ("single",) if layout.trainers == 1 else ("fsdp",)
    copies = int(fixed.get("generator.data_parallel_size", 1))
    allowed = {
        "engine": engines,
        "engine.dtype": ("bfloat16", "float32"),
        "engine.micro_tokens": [str(number) for number in MICRO_TOKENS if number >= work.longest]
        or [str(work.longest)],
        "engine.gradient_checkpointing": ("false", "true"),
        "generator.tensor_parallel_size": [
            str(number)
            for number in TENSOR_PARALLEL
            if layout.has_servers_of(number * copies) and (number == 1 or layout.generators)
        ],
    }
    values = [[fixed[key]] if key in fixed else options for key, options in allowed.items()]
    for engine, dtype, micro_tokens, checkpointing, parallel in product(*values):
        yield Choice(
            layout, engine, dtype, int(micro_tokens), checkpointing == "true", int(parallel)
        )


def best_of(layout: Layout, work: Workload, gpu: Gpu, fixed: Fixed) -> tuple[Plan | None, Plan]:
    """The fastest plan of a layout that fits, and the one that needs least memory."""
    plans = [planned(work, choice, gpu) for choice in choices_of(layout, work, fixed)]
    fitting = [plan for plan in plans if plan.fits(gpu)]
    smallest = min(plans, key=lambda plan: plan.memory.most)
    return min(fitting, key=rank, default=None), smallest


def rank(plan: Plan) -> tuple[float, float]:
    """Faster first; of equally fast ones, that with less memory."""
    return plan.seconds.whole, plan.memory.most


def ranked(layouts: Sequence[Layout], work: Workload, gpu: Gpu, fixed: Fixed) -> list[Plan]:
    """The best plan of every layout that fits, fastest first."""
    found = [best_of(layout, work, gpu, fixed)[0] for layout in layouts]
    return sorted((plan for plan in found if plan is not None), key=rank)


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
        duration(seconds.weights),
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

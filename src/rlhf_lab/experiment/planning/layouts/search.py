"""All layouts of so many devices, each with the settings that are fastest of those that fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from rlhf_lab.experiment.layout import Layout
from rlhf_lab.experiment.planning.layouts.choice import Choice
from rlhf_lab.experiment.planning.layouts.gpus import Gpu
from rlhf_lab.experiment.planning.layouts.memory import DeviceMemory, memory_of
from rlhf_lab.experiment.planning.layouts.seconds import RoundSeconds, seconds_of
from rlhf_lab.experiment.planning.layouts.workload import Workload

# The share of a device's memory that a prediction may fill.
FILLED = 0.92
MICRO_TOKENS = (4096, 8192, 16384, 32768, 65536)
TENSOR_PARALLEL = (1, 2, 4, 8)
# Settings by their key, as texts of the command line.
Fixed = Mapping[str, str]


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
    allowed = {
        "engine": engines,
        "engine.dtype": ("bfloat16", "float32"),
        "engine.micro_tokens": [str(number) for number in MICRO_TOKENS if number >= work.longest]
        or [str(work.longest)],
        "engine.gradient_checkpointing": ("false", "true"),
        "generator.tensor_parallel_size": [
            str(number)
            for number in TENSOR_PARALLEL
            if number == 1 or (layout.generators and layout.generators % number == 0)
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

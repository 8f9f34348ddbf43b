"""What `rlhf-lab plan --gpu` prints: a table of layouts, the commands of the best, and errors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from typing_extensions import TypedDict

from rlhf_lab.experiment.config import Config
from rlhf_lab.experiment.derived import response_tokens
from rlhf_lab.experiment.layout import Layout
from rlhf_lab.experiment.planning.forecast import size
from rlhf_lab.experiment.planning.layouts.choice import Choice
from rlhf_lab.experiment.planning.layouts.gpus import Gpu
from rlhf_lab.experiment.planning.layouts.search import (
    FILLED,
    Fixed,
    Plan,
    best_of,
    planned,
    ranked,
)
from rlhf_lab.experiment.planning.layouts.workload import Workload
from rlhf_lab.experiment.planning.overlap_advice import duration
from rlhf_lab.experiment.planning.timing import Measurement, measured
from rlhf_lab.rollout.generators.vllm.options import VLLMSampling
from rlhf_lab.rollout.generators.vllm.server_options import VLLMServerSampling
from rlhf_lab.runs.folder import METRICS, manifest_path, metrics
from rlhf_lab.runs.manifest import read_manifest
from rlhf_lab.runs.reading import checked
from rlhf_lab.runs.schema import Amount
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
Totals = TypedDict("Totals", {"total/generated_tokens": Amount, "total/prefill_tokens": Amount})


def show_layouts(
    layouts: Sequence[Layout],
    work: Workload,
    gpu: Gpu,
    fixed: Fixed,
    most: int,
    overrides: Sequence[str],
    console: Console,
) -> None:
    """Print the best layouts and their commands. Raises UserError where none fits."""
    plans = ranked(layouts, work, gpu, fixed)
    if not plans:
        raise UserError(nothing_fits(layouts, work, gpu, fixed))
    title = f"{len(plans)} of {len(layouts)} layouts fit on {gpu.name} ({size(gpu.memory)} each)"
    console.table(title, COLUMNS, [cells(plan, work) for plan in plans[:most]], NARROW)
    console.print(f"  {ASSUMED}")
    console.print(
        f"  prompts of {work.prompt:g} and responses of {work.response:g} tokens in the mean, "
        f"{work.rows} samples a round, {work.num_rounds} rounds, mode.max_staleness="
        f"{work.staleness}"
    )
    fastest = plans[0]
    cheapest = min(plans, key=lambda plan: plan.device_seconds)
    console.print(f"  fastest: {command(fastest.choice, overrides)}")
    if cheapest is not fastest:
        console.print(f"  fewest device-hours: {command(cheapest.choice, overrides)}")


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


def show_errors(folder: Path, config: Config, work: Workload, gpu: Gpu, console: Console) -> None:
    """Print the prediction for a run's own layout beside what the run measured. Mean lengths are
    those of the run."""
    measurement = measured(folder)
    own = work.with_lengths(*mean_lengths(folder, work))
    layout = layout_of_run(config, num_trainers(folder))
    device = config.engine.device if config.engine.device != "auto" else gpu.device
    plan = planned(own, choice_of(config, layout, device.partition(":")[0]), gpu)
    rows = [
        [name, duration(predicted), duration(took), f"{predicted / took - 1:+.0%}" if took else "-"]
        for name, predicted, took in compared(plan, measurement)
    ]
    title = f"a round of {folder} on {gpu.name}, predicted from sizes"
    console.table(title, ("part", "predicted", "measured", "error"), rows)


def mean_lengths(folder: Path, work: Workload) -> tuple[float, float]:
    """Mean tokens of the prompts that a run read and of the responses that it generated."""
    path = folder / METRICS
    rows = list(metrics(folder))
    if not rows:
        raise UserError(f"{path} has no rows: train again, a few rounds suffice")
    totals = checked(rows[-1], Totals, path)
    return (
        totals["total/prefill_tokens"] / (len(rows) * work.groups),
        totals["total/generated_tokens"] / (len(rows) * work.rows),
    )


def num_trainers(folder: Path) -> int:
    """Trainers of a run; runs from before that was recorded had one, or cannot be compared."""
    settings = read_manifest(manifest_path(folder)).get("settings", {})
    return int(settings.get("num_trainers", 1))


def layout_of_run(config: Config, trainers: int) -> Layout:
    """The layout of a run, on one node: how its devices lie on several is not recorded."""
    generator = config.generator
    servers = len(generator.urls) if isinstance(generator, VLLMServerSampling) else 0
    generators = servers * generator.num_gpus if isinstance(generator, VLLMServerSampling) else 0
    return Layout(1, trainers + generators, trainers, generators)


def choice_of(config: Config, layout: Layout, device: str) -> Choice:
    """How a config is placed by a layout. device: what `auto` means, cpu or cuda."""
    generator, engine = config.generator, config.engine.on(device)
    longest = config.task.max_prompt_tokens + response_tokens(config)
    return Choice(
        layout,
        engine.name,
        engine.dtype.value,
        engine.micro_tokens or engine.micro_rows * longest,
        engine.gradient_checkpointing,
        generator.tensor_parallel_size if isinstance(generator, VLLMSampling) else 1,
    )


def compared(plan: Plan, measurement: Measurement) -> list[tuple[str, float, float]]:
    """Part, predicted and measured seconds of a round."""
    settings, rounds = measurement.settings, measurement.rounds
    count = len(rounds)
    generated = sum(
        seconds * rows
        for round_ in rounds
        for seconds, rows in zip(round_.chunks, settings.chunk_rows, strict=False)
    )
    reference = sum(round_.rows for round_ in rounds) * settings.rows
    trained = sum(round_.trained for round_ in rounds) * settings.trained_rows
    seconds = plan.seconds
    return [
        ("generate and score", seconds.generate + seconds.score, generated / count),
        ("reference", seconds.reference, reference / count),
        ("updates", seconds.update, trained / count),
        ("round", seconds.whole, measurement.wall / count),
    ]

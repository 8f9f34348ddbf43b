"""The prediction for a run's own layout beside what the run measured."""

from __future__ import annotations

from pathlib import Path
from typing import NotRequired

from typing_extensions import TypedDict

from rlhf_lab.experiment.config.config import Config
from rlhf_lab.experiment.config.layout import Layout
from rlhf_lab.experiment.planning.layouts.choice import Choice, Workload
from rlhf_lab.experiment.planning.layouts.gpus import Gpu
from rlhf_lab.experiment.planning.layouts.search import (
    Plan,
    planned,
)
from rlhf_lab.experiment.planning.overlap_advice import duration
from rlhf_lab.experiment.planning.timing import Measurement, measured, read_before_steps
from rlhf_lab.experiment.rules.derived import sequence_tokens
from rlhf_lab.runs.folder import METRICS, manifest_path, metrics
from rlhf_lab.runs.manifest import read_manifest
from rlhf_lab.runs.reading import checked
from rlhf_lab.runs.schema import Amount
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.errors import UserError

Totals = TypedDict(
    "Totals",
    {
        "total/generated_tokens": Amount,
        "total/prefill_tokens": Amount,
        "total/observed_tokens": NotRequired[Amount],
    },
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


def mean_lengths(folder: Path, work: Workload) -> tuple[float, float, float]:
    """Mean tokens of the prompts that a run read, of the responses that it generated, and of the
    observations of an episode. What segments read again counts as prompts."""
    path = folder / METRICS
    rows = list(metrics(folder))
    if not rows:
        raise UserError(f"{path} has no rows: train again, a few rounds suffice")
    totals = checked(rows[-1], Totals, path)
    observed = totals.get("total/observed_tokens", 0)
    samples = len(rows) * work.rows
    return (
        read_before_steps(totals) / (len(rows) * work.groups),
        totals["total/generated_tokens"] / samples,
        observed / samples,
    )


def num_trainers(folder: Path) -> int:
    """Trainers of a run; runs from before that was recorded had one, or cannot be compared."""
    settings = read_manifest(manifest_path(folder)).get("settings", {})
    return int(settings.get("num_trainers", 1))


def layout_of_run(config: Config, trainers: int) -> Layout:
    """The layout of a run, on one node: how its devices lie on several is not recorded."""
    generators = config.generator.server_gpus
    return Layout(1, trainers + generators, trainers, generators)


def choice_of(config: Config, layout: Layout, device: str) -> Choice:
    """How a config is placed by a layout. device: what `auto` means, cpu or cuda."""
    generator, engine = config.generator, config.engine.on(device)
    longest = sequence_tokens(config)
    return Choice(
        layout,
        engine.name,
        engine.dtype.value,
        engine.micro_tokens or engine.micro_rows * longest,
        engine.gradient_checkpointing,
        generator.gpus_per_copy,
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

"""Make table rows from timed runs: medians, their spread, and ratios of runs that took turns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from benchmarks.speed.clock import Spread
from benchmarks.speed.device_limits import Limits
from benchmarks.speed.round_parts import Part
from benchmarks.speed.spec import Spec, Timed
from rlhf_lab_analysis.markdown import Table

TRL = "TRL"
GENERATE = "generation, transformers.generate"
UNITS = {"tokens": "tokens/s", "rows": "rows/s", "bytes": "MB/s"}


def speed_up(own: Sequence[Timed], others: Sequence[Timed]) -> Spread:
    """Completions per second over those of the run of the same repeat."""
    return Spread.of(
        [
            one.completions_per_second / other.completions_per_second
            for one, other in zip(own, others, strict=True)
        ]
    )


# For each spec's name, the runs of each side, one a repeat.
Runs = Mapping[str, Mapping[str, Sequence[Timed]]]


def run_table(specs: Sequence[Spec], runs: Runs) -> Table:
    """A row for each setting and side."""
    rows = []
    for spec in specs:
        for side, found in runs[spec.name].items():
            against = "1" if side == TRL else speed_up(found, runs[spec.name][TRL]).text(".2f")
            rows.append(
                [
                    spec.name,
                    f"{spec.groups} x {spec.group_size}",
                    side,
                    Spread.of([run.completions_per_second for run in found]).text(".1f"),
                    Spread.of([run.tokens_per_second for run in found]).text(),
                    f"{median(run.seconds for run in found):.2f}",
                    against,
                ]
            )
    columns = ["setting", "prompts x K", "side", "completions/s", "tokens/s", "seconds", "over TRL"]
    title = "end to end: medians of the repeats [smallest, largest]; ratios are within a repeat"
    return Table(title, columns, rows)


def part_rows(name: str, found: Mapping[str, Any], limits: Limits) -> list[list[str]]:
    """A row for each part of a model, generation with its ratio to transformers.generate and its
    share of what memory allows, forward passes with theirs of what arithmetic allows."""
    parts = [Part(**part) for part in found["parts"]]
    base = next(part for part in parts if part.name == GENERATE).per_second("tokens")
    rows = []
    for part in parts:
        share, ratio = "", ""
        if part.name.startswith("generation"):
            speed = part.per_second("tokens")
            ratio = f"{speed / base:.2f}"
            share = f"{speed / limits.decoding(found['weight_bytes'], found['rows']):.1%} of memory"
        elif "tokens" in part.amounts:
            share = (
                f"{part.per_second('tokens') / limits.reading(found['parameters']):.1%} of FLOPs"
            )
        rows.append([name, part.name, f"{1000 * part.seconds:.1f}", rates(part), ratio, share])
    return rows


def rates(part: Part) -> str:
    """What a part does in a second, in each of its units."""
    scale = {"bytes": 1e6}
    return ", ".join(
        f"{part.per_second(unit) / scale.get(unit, 1):,.0f} {UNITS[unit]}" for unit in part.amounts
    )


def part_table(found: Mapping[str, Mapping[str, Any]]) -> Table:
    """All parts of all models."""
    rows = [
        row
        for name, model in found.items()
        for row in part_rows(name, model, Limits(**model["limits"]))
    ]
    columns = ["model", "part of a round", "ms", "rate", "over transformers", "share of the limit"]
    return Table("parts of a round by themselves, medians of 5", columns, rows)


def training_table(specs: Sequence[Spec], runs: Runs, found: Mapping[str, Any]) -> Table:
    """What the updates of sync reach of the arithmetic limit: 6 operations per parameter and
    token."""
    rows = []
    for spec in specs:
        model = found[spec.label]
        limits = Limits(**model["limits"])
        speed = median(run.trained_per_second for run in runs[spec.name]["rlhf_lab sync"])
        share = speed / limits.training(model["parameters"])
        rows.append([spec.name, f"{speed:,.0f}", f"{share:.1%}"])
    return Table(
        "updates of rlhf_lab sync", ["setting", "tokens trained/s", "share of FLOPs"], rows
    )

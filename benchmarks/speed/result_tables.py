"""Make table rows from timed runs: medians, their spread, and ratios of runs that took turns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from benchmarks.speed.clock import Spread
from benchmarks.speed.device_limits import Limits
from benchmarks.speed.round_parts import GENERATE
from benchmarks.speed.spec import Spec, Timed
from rlhf_lab_analysis.markdown import Table

OURS, TRL = "rlhf_lab sync", "TRL"
UNITS = {"tokens": (1, "tokens/s"), "rows": (1, "rows/s"), "bytes": (1e6, "MB/s")}
# For each spec's name, the runs of each side, one a repeat.
Runs = Mapping[str, Mapping[str, Sequence[Timed]]]


def speed_up(own: Sequence[Timed], others: Sequence[Timed]) -> Spread:
    """Completions per second over those of the run of the same repeat."""
    pairs = zip(own, others, strict=True)
    return Spread.of([a.completions_per_second / b.completions_per_second for a, b in pairs])


def run_table(specs: Sequence[Spec], runs: Runs) -> Table:
    """A row for each setting and side."""
    rows = []
    for spec in specs:
        for side, found in runs[spec.name].items():
            against = "1" if side == TRL else speed_up(found, runs[spec.name][TRL]).text(".2f")
            rates = Spread.of([run.completions_per_second for run in found])
            tokens = Spread.of([run.tokens_per_second for run in found])
            seconds = f"{median(run.seconds for run in found):.2f}"
            size = f"{spec.groups} x {spec.group_size}"
            rows.append([spec.name, size, side, rates.text(".1f"), tokens.text(), seconds, against])
    columns = ["setting", "prompts x K", "side", "completions/s", "tokens/s", "seconds", "over TRL"]
    title = "end to end: medians of the repeats [smallest, largest]; ratios are within a repeat"
    return Table(title, columns, rows)


def training_table(specs: Sequence[Spec], runs: Runs, found: Mapping[str, Any]) -> Table:
    """What the updates of sync reach of the arithmetic limit: 6 operations per parameter and
    token."""
    rows = []
    for spec in specs:
        model = found[spec.label]
        speed = median(run.trained_tokens / run.update_seconds for run in runs[spec.name][OURS])
        share = speed / Limits(**model["limits"]).training(model["parameters"])
        rows.append([spec.name, f"{speed:,.0f}", f"{share:.1%}"])
    columns = ["setting", "tokens trained/s", "share of FLOPs"]
    return Table(f"updates of {OURS}", columns, rows)


def part_table(found: Mapping[str, Mapping[str, Any]]) -> Table:
    """All parts of all models."""
    rows = [row for name, model in found.items() for row in part_rows(name, model)]
    columns = ["model", "part of a round", "ms", "rate", "over transformers", "share of the limit"]
    return Table("parts of a round by themselves, medians of 5", columns, rows)


def part_rows(name: str, found: Mapping[str, Any]) -> list[list[str]]:
    """A row for each part of a model, generation with its ratio to transformers.generate and its
    share of what memory allows, forward passes with theirs of what arithmetic allows."""
    limits = Limits(**found["limits"])
    rates = {
        part["name"]: {unit: done / part["seconds"] for unit, done in part["amounts"].items()}
        for part in found["parts"]
    }
    rows = []
    for part in found["parts"]:
        own, share, ratio = rates[part["name"]], "", ""
        if part["name"].startswith("generation"):
            ratio = f"{own['tokens'] / rates[GENERATE]['tokens']:.2f}"
            most = limits.decoding(found["weight_bytes"], found["rows"])
            share = f"{own['tokens'] / most:.1%} of memory"
        elif "tokens" in own:
            share = f"{own['tokens'] / limits.reading(found['parameters']):.1%} of FLOPs"
        texts = [f"{rate / UNITS[unit][0]:,.0f} {UNITS[unit][1]}" for unit, rate in own.items()]
        milliseconds = f"{1000 * part['seconds']:.1f}"
        rows.append([name, part["name"], milliseconds, ", ".join(texts), ratio, share])
    return rows

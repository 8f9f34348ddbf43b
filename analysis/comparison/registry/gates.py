"""Leave out runs whose SFT or proxy is not good enough, by bounds that were stated before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pandas as pd

from rlhf_lab_analysis.comparison.registry.definitions import Bound, Registry
from rlhf_lab_analysis.tables.table import Tables


def gated(registry: Registry, tables: Tables) -> tuple[Tables, list[str]]:
    """The tables without the runs that a gate stops, and a line for each of their stage seeds.

    A run without such a number, as one of a pretrained policy, passes.
    """
    quality = qualities(tables, registry)
    stopped: set[str] = set()
    lines: dict[str, int] = {}
    for row in tables.runs.to_dict("records"):
        numbers = quality.get(str(row["run"]), {})
        for key, bound in registry.gates.get(str(row["task"]), {}).items():
            if key in numbers and not passes(numbers[key], bound):
                stopped.add(str(row["run"]))
                text = (
                    f"stopped by the gate: {row['task']}, stage seed {stage_of(row)}: {key} "
                    f"{numbers[key]:.3f}, {bound_text(bound)}"
                )
                lines[text] = lines.get(text, 0) + 1
    kept = [f"{text} ({num} runs)" for text, num in sorted(lines.items())]
    return without(tables, stopped), kept


def qualities(tables: Tables, registry: Registry) -> dict[str, dict[str, float]]:
    """What evaluations recorded of the stages of each run."""
    keys = {key for bounds in registry.gates.values() for key in bounds} & set(tables.versions)
    found: dict[str, dict[str, float]] = {}
    for key in keys:
        for run, values in tables.versions.groupby("run")[key]:
            if not values.isna().all():
                found.setdefault(str(run), {})[key] = float(values.dropna().iloc[0])
    return found


def passes(value: float, bound: Bound) -> bool:
    return bound.get("least", value) <= value <= bound.get("most", value)


def bound_text(bound: Bound) -> str:
    return " and ".join(f"at {name} {value:g} is wanted" for name, value in bound.items())


def stage_of(row: Mapping[object, object]) -> object:
    """The seed of a run's stages."""
    stage = row.get("stage_seed")
    return row["seed"] if stage is None or pd.isna(stage) else stage


def without(tables: Tables, stopped: set[str]) -> Tables:
    if not stopped:
        return tables
    points, versions, runs = (
        frame[~frame["run"].isin(stopped)].reset_index(drop=True)
        for frame in (tables.points, tables.versions, tables.runs)
    )
    return replace(tables, points=points, versions=versions, runs=runs)

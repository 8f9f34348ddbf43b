"""Leave out runs whose SFT or proxy is not good enough, by bounds that were stated before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from rlhf_lab.runs.trackers.console import counted
from rlhf_lab_analysis.comparison.registry.definitions import Registry
from rlhf_lab_analysis.comparison.registry.rows import Bound
from rlhf_lab_analysis.tables.table import Tables

QUALITY = ("stage/sft_loss", "stage/proxy_accuracy")


@dataclass(frozen=True)
class Stage:
    """The stages of a seed: what evaluations recorded of them, and how many runs began there."""

    task: str
    model: str
    seed: int
    numbers: Mapping[str, float]
    is_good: bool
    runs: int

    @property
    def row(self) -> tuple[str, ...]:
        numbers = [f"{self.numbers[key]:.3f}" if key in self.numbers else "" for key in QUALITY]
        passed = "yes" if self.is_good else "no"
        return self.task, self.model, str(self.seed), *numbers, passed, str(self.runs)


def stages_of(registry: Registry, tables: Tables) -> list[Stage]:
    """Every stage seed of these runs, of those that recorded how good its stages were."""
    quality = qualities(tables, QUALITY)
    found: dict[tuple[str, str, int], list[str]] = {}
    for row in runs_of(tables):
        if str(row["run"]) in quality:
            key = (str(row["task"]), str(row["model"]), int(stage_of(row)))
            found.setdefault(key, []).append(str(row["run"]))
    return [
        Stage(
            task,
            model,
            seed,
            quality[runs[0]],
            not failing(registry, task, quality[runs[0]]),
            len(runs),
        )
        for (task, model, seed), runs in sorted(found.items())
    ]


def gated(registry: Registry, tables: Tables) -> tuple[Tables, list[str]]:
    """The tables without the runs that a gate stops, and a line for each of their stage seeds.

    A run without such a number, as one of a pretrained policy, passes.
    """
    quality = qualities(tables, QUALITY)
    stopped: set[str] = set()
    lines: Counter[str] = Counter()
    for row in runs_of(tables):
        task, run = str(row["task"]), str(row["run"])
        for reason in failing(registry, task, quality.get(run, {})):
            stopped.add(run)
            lines[f"stopped by the gate: {task}, stage seed {stage_of(row)}: {reason}"] += 1
    kept = [f"{text} ({counted(num, 'run')})" for text, num in sorted(lines.items())]
    return without(tables, stopped), kept


def runs_of(tables: Tables) -> list[dict[Any, Any]]:
    """What stages are known by, of each run: the tables have hundreds of other columns."""
    known = tables.runs.reindex(columns=["run", "task", "model", "seed", "stage_seed"])
    rows: list[dict[Any, Any]] = known.to_dict("records")
    return rows


def failing(registry: Registry, task: str, numbers: Mapping[str, float]) -> list[str]:
    """The gates of the task that these numbers do not pass."""
    return [
        f"{key} is {numbers[key]:.3f}, and {bound_text(bound)} is wanted"
        for key, bound in registry.gates.get(task, {}).items()
        if key in numbers and not passes(numbers[key], bound)
    ]


def qualities(tables: Tables, keys: Sequence[str]) -> dict[str, dict[str, float]]:
    """What evaluations recorded of the stages of each run."""
    found: dict[str, dict[str, float]] = {}
    for key in {*keys} & set(tables.versions):
        for run, value in tables.versions.groupby("run")[key].first().dropna().items():
            found.setdefault(str(run), {})[key] = float(value)
    return found


def passes(value: float, bound: Bound) -> bool:
    return bound.get("least", value) <= value <= bound.get("most", value)


def bound_text(bound: Bound) -> str:
    return " and ".join(f"at {name} {value:g}" for name, value in bound.items())


def stage_of(row: Mapping[Any, Any]) -> int:
    """The seed of a run's stages."""
    stage = row.get("stage_seed")
    return int(row["seed"] if stage is None or pd.isna(stage) else stage)


def without(tables: Tables, stopped: set[str]) -> Tables:
    if not stopped:
        return tables
    points, versions, runs = (
        frame[~frame["run"].isin(stopped)].reset_index(drop=True)
        for frame in (tables.points, tables.versions, tables.runs)
    )
    return replace(tables, points=points, versions=versions, runs=runs)

"""Make the page's table of runs: state, seed, code, findings, and links to the run's files."""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pandas as pd

from rlhf_lab_analysis.comparison.cell import Key
from rlhf_lab_analysis.rounding import MISSING
from rlhf_lab_analysis.sources.record import flat_config
from rlhf_lab_analysis.tables.table import Tables
from rlhf_lab_analysis.words import label

# What `rlhf-lab timeline` draws, and what it is drawn from.
TIMELINES = ("timeline.html", "timeline.jsonl")
VIRTUAL_TIMELINE = "virtual_timeline.html"
AFTER = ("rounds", "versions", "wall-clock, s", "findings", "code", "files", "folder", "config")


@dataclass(frozen=True)
class RunRow:
    """A run. group: the number of its condition in the page, None where the run does not count.
    env: its environment, where there are several. score: of the page's metric. counts: recorded
    rounds and judged versions."""

    id: str
    group: int | None
    place: str
    name: str
    env: Sequence[str]
    state: str
    score: float
    counts: Sequence[str]
    seconds: float
    findings: Sequence[str]
    code: str
    links: Sequence[tuple[str, str]]


def run_table(
    tables: Tables, titles: Mapping[Key, str], metric: str, beside: Path
) -> dict[str, Any]:
    """The table of runs. titles: names of conditions by sweep, environment and condition, in
    order. beside: the page's folder, which links are relative to."""
    order = {key: number for number, key in enumerate(titles)}
    rows = sorted(
        tables.runs.to_dict("records"),
        key=lambda row: (order.get(key_of(row), len(order)), key_of(row)),
    )
    has_env = tables.runs["env_id"].nunique() > 1

    def run_row(row: Mapping[Any, Any]) -> RunRow:
        place, key = str(row["place"]), key_of(row)
        return RunRow(
            id=str(row["run"]),
            group=order.get(key),
            place=place,
            name=f"{titles.get(key, row['condition'])}, {seed_text(row)}",
            env=[str(row["env_id"])] if has_env else [],
            state=str(row["state"]),
            score=value_of(row, metric),
            counts=[rounds_of(row), whole(row["versions"])],
            seconds=value_of(row, "x/wall_seconds"),
            findings=[line for line in str(row["problems"]).splitlines() if line],
            code=str(row["code"])[:8],
            links=links(Path(place), beside),
        )

    env = ["environment"] if has_env else []
    return {
        "run_heads": ["run", *env, "state", label(metric), *AFTER],
        "runs": [run_row(row) for row in rows],
    }


def key_of(row: Mapping[Any, Any]) -> Key:
    return str(row["sweep"]), str(row["env_id"]), str(row["condition"])


def seed_text(row: Mapping[Any, Any]) -> str:
    """The seed of a run, after that of its stages where it has one."""
    if pd.isna(row["seed"]):
        return "no seed"
    stage = row.get("stage_seed")
    before = "" if stage is None or pd.isna(stage) else f"stage seed {int(stage)}, "
    return f"{before}seed {int(row['seed'])}"


def value_of(row: Mapping[Any, Any], column: str) -> float:
    """A number of a run: of its last evaluation, else its last round, else a cost."""
    for name in (f"final/{column}", f"last/{column}", column):
        if isinstance(row.get(name), float):
            return float(row[name])
    return math.nan


def whole(value: Any) -> str:
    return MISSING if pd.isna(value) else str(int(value))


def rounds_of(row: Mapping[Any, Any]) -> str:
    """Recorded rounds, and how many were planned where that is another number."""
    done, planned = whole(row["points"]), row["planned_rounds"]
    return done if pd.isna(planned) or int(planned) == row["points"] else f"{done} of {planned}"


def links(folder: Path, beside: Path) -> list[tuple[str, str]]:
    """Names of and links to the config and timelines of a run that is a folder of this machine. Of
    its timeline the drawing, if `rlhf-lab timeline RUN` made one."""
    names = [name for name in ("config.yaml", VIRTUAL_TIMELINE) if (folder / name).is_file()]
    names += [name for name in TIMELINES if (folder / name).is_file()][:1]
    return [(name, relative(folder / name, beside)) for name in names]


def relative(path: Path, beside: Path) -> str:
    """The way from the page to a file, as a link."""
    way = os.path.relpath(path.resolve(), beside.resolve())
    return quote(Path(way).as_posix())


def configs(tables: Tables) -> dict[str, Any]:
    """Every run's config as `key: value`: what most runs have, and what a run has of its own."""
    flat = {
        str(row["run"]): {
            key: as_text(v) for key, v in flat_config(json.loads(row["config"])).items()
        }
        for row in tables.runs.to_dict("records")
    }
    counts: dict[str, Counter[str]] = {}
    for config in flat.values():
        for key, value in config.items():
            counts.setdefault(key, Counter())[value] += 1
    common = {key: max(sorted(held), key=held.__getitem__) for key, held in counts.items()}
    own = {
        run: {
            **{key: value for key, value in config.items() if common[key] != value},
            **dict.fromkeys(key for key in common if key not in config),
        }
        for run, config in flat.items()
    }
    return {"common": common, "own": own}


def as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)

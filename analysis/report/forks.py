"""The forks among the runs as trees: below a run its forks, what they changed and how they end."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlhf_lab_analysis.report.run_table import value_of
from rlhf_lab_analysis.report.titles import run_names
from rlhf_lab_analysis.sources.conditions import FORK_CHANGES, FORK_PARENT, shared_rounds
from rlhf_lab_analysis.tables.table import Tables

UNCHANGED = "no change"


@dataclass(frozen=True)
class Branch:
    """A run and its forks. change: from which round on what is different, "" for a run of its own.
    score: its last value of the page's metric. difference: that less its parent's, NaN without
    one."""

    name: str
    change: str
    state: str
    score: float
    difference: float
    forks: Sequence[Branch]


@dataclass(frozen=True)
class _Run:
    """A run of the tables. parent: the id of the run that it is a fork of, "" of none."""

    id: str
    parent: str
    name: str
    change: str
    state: str
    score: float


def fork_trees(tables: Tables, metric: str) -> list[Branch]:
    """Every run that has forks, in the order of the tables. Forks whose parent is not among the
    runs stand alone."""
    names = run_names(tables.runs)
    runs = [run_of(row, names, metric) for row in tables.runs.to_dict("records")]
    known = {run.id for run in runs}
    below: dict[str, list[_Run]] = {}
    for run in runs:
        if run.parent:
            below.setdefault(run.parent, []).append(run)
    roots = [run for run in runs if run.parent not in known]
    return [branch(run, None, below) for run in roots if run.parent or run.id in below]


def run_of(row: Mapping[Any, Any], names: Mapping[str, str], metric: str) -> _Run:
    config = json.loads(row["config"])
    parent = str(config.get(FORK_PARENT) or "")
    change = f"from round {shared_rounds(config)}: {config.get(FORK_CHANGES) or UNCHANGED}"
    run = str(row["run"])
    score = value_of(row, metric)
    return _Run(run, parent, names[run], change if parent else "", str(row["state"]), score)


def branch(run: _Run, parent: _Run | None, below: Mapping[str, Sequence[_Run]]) -> Branch:
    difference = run.score - parent.score if parent else math.nan
    forks = [branch(fork, run, below) for fork in below.get(run.id, ())]
    return Branch(run.name, run.change, run.state, run.score, difference, forks)

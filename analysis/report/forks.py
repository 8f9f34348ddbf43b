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
    """A run and its forks. change: the round from which it differs from its parent and the changed
    settings, "" for a run that is no fork. score: its last value of the page's metric. difference:
    that less its parent's, NaN without a parent."""

    name: str
    change: str
    state: str
    score: float
    difference: float
    forks: Sequence[Branch]


def fork_trees(tables: Tables, metric: str) -> list[Branch]:
    """Every run that has forks, in the order of the tables. Forks whose parent is not among the
    runs stand alone."""
    rows = {str(row["run"]): row for row in tables.runs.to_dict("records")}
    configs = {run: json.loads(row["config"]) for run, row in rows.items()}
    names = run_names(tables.runs)
    below: dict[str, list[str]] = {}
    for run, config in configs.items():
        if parent := config.get(FORK_PARENT):
            below.setdefault(str(parent), []).append(run)

    def branch(run: str, parent_score: float) -> Branch:
        score = value_of(rows[run], metric)
        forks = [branch(fork, score) for fork in below.get(run, ())]
        state = str(rows[run]["state"])
        return Branch(
            names[run], change_of(configs[run]), state, score, score - parent_score, forks
        )

    roots = [run for run in rows if str(configs[run].get(FORK_PARENT)) not in rows]
    return [branch(run, math.nan) for run in roots if configs[run].get(FORK_PARENT) or run in below]


def change_of(config: Mapping[str, Any]) -> str:
    if not config.get(FORK_PARENT):
        return ""
    return f"from round {shared_rounds(config)}: {config.get(FORK_CHANGES) or UNCHANGED}"

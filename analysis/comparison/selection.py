"""From tables to what is compared: the runs of a condition over seeds, and which do not count."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from rlhf_lab.runs.folder import LAST
from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.comparison.cell import Cell, Member, Seeds
from rlhf_lab_analysis.sources.conditions import NUMBERS, PARTS, TUNING
from rlhf_lab_analysis.tables.table import Tables

# What a run is missing that was cut short is its end, by which it would be compared.
ENDED = ("finished", "unknown")
GOING_ON = ("running", "paused", "interrupted")
KEY = ["sweep", "env_id", "condition"]


@dataclass(frozen=True)
class Selection:
    """The conditions to compare, and for each run that is left out a line with the reason."""

    cells: tuple[Cell, ...]
    left_out: tuple[str, ...]

    def only(self, **wanted: Any) -> Selection:
        """The cells whose parts, sweep, env or condition have these values (or one of a list)."""
        return Selection(tuple(c for c in self.cells if holds(c, wanted)), self.left_out)


def cells(tables: Tables, unjudged: bool = False, unfinished: bool = False) -> Selection:
    """The conditions of these tables with the runs that count. unjudged: runs without a judged
    version, and those without rounds, count too. unfinished: runs that have not ended count too.

    A run does not count if it did not finish, has no seed, was judged at no version, lost its
    rounds, or its condition and seed are there already; `left_out` has the reason.
    """
    left_out: list[str] = []
    states = (*ENDED, *GOING_ON) if unfinished else ENDED
    versions = labelled(tables.versions, "")
    rows = {str(run): frame for run, frame in versions.groupby("run")}
    finals = {str(run): frame for run, frame in labelled(tables.versions, LAST).groupby("run")}
    recorded = {str(run): frame for run, frame in tables.points.groupby("run")}
    if unjudged:
        every = [str(run) for run in tables.runs["run"]]
        rows = dict.fromkeys(every, versions[:0]) | rows
        recorded = dict.fromkeys(every, tables.points[:0]) | recorded
    # Of all runs at once: the time goes by column, and there are hundreds.
    records = dict(zip(tables.runs.index, tables.runs.to_dict("records"), strict=True))
    found = []
    for (sweep, env, condition), group in tables.runs.groupby(KEY, sort=True, dropna=False):
        members: dict[Seeds, Member] = {}
        for row in (records[place] for place in group.index):
            if reason := why_not(row, rows, recorded, members, states):
                left_out.append(f"left out: {row['place']} ({reason})")
            else:
                run = str(row["run"])
                own = {str(key): value for key, value in row.items()}
                points = recorded.get(run, tables.points[:0])
                members[seeds_of(row)] = Member(own, rows[run], points, finals.get(run))
        if members:
            parts = parts_of(next(iter(members.values())).row, tables.runs)
            found.append(Cell(str(sweep), str(env), str(condition), parts, members))
    return Selection(tuple(found), tuple(left_out))


def seeds_of(row: Mapping[Any, Any]) -> Seeds:
    """The seed of a run's stages, 0 where it is that of the run, and the seed of the run."""
    stage_seed = row.get("stage_seed")
    return 0 if stage_seed is None or pd.isna(stage_seed) else int(stage_seed), int(row["seed"])


def labelled(versions: pd.DataFrame, label: str) -> pd.DataFrame:
    """The evaluations with a label, in order of versions; '' for those of a run's own versions."""
    own = versions[versions["label"].fillna("") == label]
    return own.sort_values(["run", "version"], kind="stable")


def why_not(
    row: Mapping[Any, Any],
    rows: Mapping[str, pd.DataFrame],
    recorded: Mapping[str, pd.DataFrame],
    members: Mapping[Seeds, Any],
    states: Sequence[str],
) -> str:
    """Why a run does not count; empty if it does."""
    checks: tuple[tuple[Callable[[], bool], str], ...] = (
        (lambda: row.get("role") == TUNING, "it tuned a search: its seed chose the setting"),
        (lambda: row["state"] not in states, f"its state is {row['state']}"),
        (lambda: bool(pd.isna(row["seed"])), "it has no seed"),
        (lambda: str(row["run"]) not in rows, "no version of it was judged"),
        (lambda: has_lost_rounds(row, recorded), "none of its rounds is there"),
        (lambda: seeds_of(row) in members, f"seed {row['seed']} is there already"),
    )
    return next((reason for fails, reason in checks if fails()), "")


def has_lost_rounds(row: Mapping[Any, Any], recorded: Mapping[str, pd.DataFrame]) -> bool:
    """Whether a run's rounds are missing; known only if the number of planned rounds is."""
    return not pd.isna(row["planned_rounds"]) and str(row["run"]) not in recorded


def parts_of(row: Mapping[str, Any], runs: pd.DataFrame) -> dict[str, Any]:
    """The parts of a run, and the other settings that distinguish conditions."""
    names = list(runs.columns)
    extra = names[names.index("max_staleness") + 1 : names.index("place")]
    plain = {name: row[name] for name in (*PARTS, *extra)}
    numbers = {name: None if pd.isna(row[name]) else int(row[name]) for name in NUMBERS}
    return {**plain, **numbers}


def holds(cell: Cell, wanted: Mapping[str, Any]) -> bool:
    own = {**cell.parts, "sweep": cell.sweep, "env": cell.env, "condition": cell.condition}
    for name, value in wanted.items():
        if name not in own:
            raise UserError(f"{name}={value}: conditions have {', '.join(own)}")
        if own[name] not in (value if isinstance(value, list | tuple) else [value]):
            return False
    return True

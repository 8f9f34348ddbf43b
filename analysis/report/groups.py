"""Which runs a page draws together, under which name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from analysis.comparison.selection import KEY, parts_of, told_as, unlabelled, why_not
from analysis.sources.conditions import NUMBERS, PARTS
from analysis.tables.table import Tables

# A proxy and a reward tell conditions apart last: their names say little by themselves.
ORDER = ("algo", "mode", "correction", *NUMBERS, "model", "task", "proxy", "reward")


@dataclass(frozen=True, eq=False)
class Run:
    """A run that counts: its row of the runs table, recorded rounds, and judged versions."""

    seed: int
    row: Mapping[str, Any]
    rounds: pd.DataFrame
    versions: pd.DataFrame


@dataclass(frozen=True, eq=False)
class Group:
    """The runs of one condition in one environment and sweep, by seed.

    title: the parts in which it differs from the others of the page.
    """

    sweep: str
    env: str
    condition: str
    parts: Mapping[str, Any]
    runs: tuple[Run, ...]
    title: str = ""

    @property
    def seeds(self) -> list[int]:
        return [run.seed for run in self.runs]

    def scores(self, metric: str) -> dict[int, float]:
        """The metric of the last judged version, by seed; NaN where there is none."""
        return {run.seed: last(run.versions, metric) for run in self.runs}


def last(frame: pd.DataFrame, column: str) -> float:
    """The last value of a column; NaN where there is none."""
    return float(frame[column].iloc[-1]) if column in frame and len(frame) else float("nan")


def groups_of(tables: Tables, columns: Sequence[str]) -> tuple[list[Group], list[str]]:
    """The conditions with the runs that count, and a line for each run that does not.

    As in comparison.selection, but runs that were never evaluated are drawn over their rounds.
    columns: what is needed of rounds and versions.
    """
    judged = split(unlabelled(tables.versions), columns)
    recorded = split(tables.points, columns)
    everything = {str(run): tables.versions for run in tables.runs["run"]}
    found: list[Group] = []
    left_out: list[str] = []
    for (sweep, env, condition), rows in tables.runs.groupby(KEY, sort=True, dropna=False):
        runs: dict[int, Run] = {}
        for row in rows.to_dict("records"):
            if reason := why_not(row, everything, everything, runs):
                left_out.append(f"left out: {row['place']} ({reason})")
                continue
            run, seed = str(row["run"]), int(row["seed"])
            rounds, versions = recorded.get(run, EMPTY), judged.get(run, EMPTY)
            runs[seed] = Run(seed, {str(k): v for k, v in row.items()}, rounds, versions)
        if runs:
            parts = parts_of(next(iter(runs.values())).row, tables.runs)
            ordered = tuple(runs[seed] for seed in sorted(runs))
            found.append(Group(str(sweep), str(env), str(condition), parts, ordered))
    return titled(found), left_out


EMPTY = pd.DataFrame()


def split(frame: pd.DataFrame, columns: Sequence[str]) -> dict[str, pd.DataFrame]:
    """These columns of each run, those that there are."""
    kept = frame[["run", *(name for name in columns if name in frame)]]
    return {str(run): rows for run, rows in kept.groupby("run")}


def titled(groups: Sequence[Group]) -> list[Group]:
    """The groups with names that tell them apart, as short as they can be."""
    named: list[Group] = []
    for env in dict.fromkeys(group.env for group in groups):
        held = [group for group in groups if group.env == env]
        told = known(held)
        held.sort(key=lambda group: [rank(group.parts.get(name)) for name in told])
        names = titles(held)
        named += [replace(group, title=name) for group, name in zip(held, names, strict=True)]
    return named


def titles(groups: Sequence[Group]) -> list[str]:
    """A name for each group of an environment: the parts that differ, then more if need be."""
    differ = differing(groups) or ["mode"]
    told = [name for name in known(groups) if name in {"algo", *differ}]
    short = [" ".join(filter(None, (told_as(n, g.parts.get(n)) for n in told))) for g in groups]
    plain = [name or group.condition for name, group in zip(short, groups, strict=True)]
    if is_apart(plain):
        return plain
    with_sweep = [f"{name} ({g.sweep})" for name, g in zip(plain, groups, strict=True)]
    if is_apart(with_sweep):
        return with_sweep
    return [f"{group.condition} ({group.sweep})" for group in groups]


def rank(value: Any) -> tuple[bool, float, str]:
    """Numbers by size, before texts."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return (not is_number, float(value) if is_number else 0.0, str(value))


def known(groups: Sequence[Group]) -> list[str]:
    """Every part of these groups, those that tell most of a condition first."""
    return list(dict.fromkeys([*ORDER, *PARTS, *(name for g in groups for name in g.parts)]))


def differing(groups: Sequence[Group]) -> list[str]:
    """The parts in which these groups differ within an environment, in order."""
    envs = {group.env: [g for g in groups if g.env == group.env] for group in groups}
    return [
        name
        for name in known(groups)
        if any(len({str(g.parts.get(name)) for g in held}) > 1 for held in envs.values())
    ]


def is_apart(names: Sequence[str]) -> bool:
    return len(set(names)) == len(names)

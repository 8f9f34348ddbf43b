"""Turn run records into data frames: recorded points, evaluated versions, and runs."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from rlhf_lab_analysis.sources.axes import COLUMNS as AXES
from rlhf_lab_analysis.sources.axes import GLOBAL_STEP, VersionAxes, axes_of, clock_of
from rlhf_lab_analysis.sources.conditions import COLUMNS as PLACE_COLUMNS
from rlhf_lab_analysis.sources.conditions import NUMBERS, Place, columns, role_of, shared_rounds
from rlhf_lab_analysis.sources.findings import Finding, Kind
from rlhf_lab_analysis.sources.record import Cell, Record, Row

# A metric of such a name would take the place of a column: it gets the prefix.
METRIC = "metric/"
OWN = ("label", "version")
WHOLE = (
    "stage_seed",
    "seed",
    *NUMBERS,
    "version",
    "planned_rounds",
    "points",
    "versions",
    "repeat",
)


@dataclass(frozen=True)
class Placed:
    """A run and where it stands. repeat: how many runs of its condition and seed come before it."""

    record: Record
    place: Place
    repeat: int = 0


def points_frame(runs: Sequence[Placed], metrics: Sequence[str]) -> pd.DataFrame:
    """One row a run and recorded point. metrics: the columns wanted, all if empty. Of a fork, the
    last round that it shares with its parent is the first: its curve leaves the parent's there."""
    rows = [
        own | axes_of(row, run.record.facts.step) | metric_values(row, keep)
        for run in runs
        for own, keep in [(columns(run.record, run.place), metric_columns(run, metrics))]
        for row in run.record.rounds[max(0, shared_rounds(run.record.config) - 1) :]
    ]
    return make_frame(rows, [*key_columns(runs), *AXES])


def versions_frame(runs: Sequence[Placed], metrics: Sequence[str]) -> pd.DataFrame:
    """One row a run and evaluated version, with the axes at which the version was ready."""
    rows = []
    for run in runs:
        axes = VersionAxes(run.record, optimizer_steps_per_round(run.place))
        own, keep = columns(run.record, run.place), metric_columns(run, metrics)
        for row in run.record.evals:
            version = int(row["version"])
            point, _ = axes.at(version, row)
            place = {"label": row.get("label", ""), "version": version}
            rows.append(own | place | point | metric_values(drop_own_columns(row), keep))
    return make_frame(rows, [*key_columns(runs), *OWN, *AXES])


def runs_frame(runs: Sequence[Placed], findings: Sequence[Finding]) -> pd.DataFrame:
    """One row a run: what it is, what it had cost at the end, its last values (`last/NAME` of the
    points, `final/NAME` of the evaluation without a label), its config and its problems."""
    problems: dict[str, list[str]] = {}
    for finding in findings:
        problems.setdefault(finding.run, []).append(finding.line)
    rows = [run_row(run, problems.get(run.record.run, [])) for run in runs]
    return make_frame(rows, key_columns(runs))


def run_row(run: Placed, problems: Sequence[str]) -> dict[str, Any]:
    record, facts = run.record, run.record.facts
    unlabelled = [row for row in record.evals if not row.get("label")]
    row: dict[str, Any] = columns(record, run.place) | {
        "place": record.place,
        "name": facts.name,
        "project": facts.project,
        "swept": facts.swept,
        "job_type": facts.job_type,
        "role": role_of(record),
        "state": facts.state,
        "repeat": run.repeat,
        "planned_rounds": facts.planned_rounds,
        "points": len(record.rounds),
        "versions": len(record.evals),
        "started": facts.started,
        "code": facts.code,
        "commit": facts.commit,
        "content": facts.content,
        "tags": json.dumps(facts.tags),
        "step": facts.step,
        "machine": facts.machine,
        "kernels": facts.kernels,
        "precision": facts.precision,
        "clock": clock_of(record),
        "changed": "" if facts.changed is None else json.dumps(sorted(facts.changed)),
        "config": json.dumps(record.config, default=str),
        "problems": "\n".join(dict.fromkeys(problems)),
    }
    if record.rounds:
        row |= axes_of(record.rounds[-1], facts.step)
    row |= {f"last/{name}": value for name, value in last_values(record.rounds).items()}
    finals = last_values([drop_own_columns(one) for one in unlabelled[-1:]])
    return row | {f"final/{name}": value for name, value in finals.items()}


def last_values(rows: Iterable[Row]) -> dict[str, Cell]:
    """The last recorded value of every metric."""
    found: dict[str, Cell] = {}
    for row in rows:
        found.update(row)
    return {name: value for name, value in found.items() if is_metric(name)}


def is_metric(name: str) -> bool:
    """Whether a recorded name is neither a tracker's own nor an axis of it."""
    return not name.startswith("_") and name != GLOBAL_STEP


def metric_names(record: Record) -> tuple[set[str], set[str]]:
    """Names of the metrics that a run recorded, and of those that its evaluations have."""
    points, judged = set[str]().union(*record.rounds), set[str]().union(*record.evals)
    return {name for name in points if is_metric(name)}, judged - set(OWN)


def metric_columns(run: Placed, metrics: Sequence[str]) -> dict[str, str]:
    """The column of each requested metric that the run has."""
    points, judged = metric_names(run.record)
    names = (points | judged) & set(metrics) if metrics else points | judged
    return {name: column_of(name) for name in names}


def metric_values(row: Row, keep: Mapping[str, str]) -> dict[str, Cell]:
    """The metrics of a row that have a column in `keep`, by column."""
    return {keep[name]: value for name, value in row.items() if name in keep}


def column_of(name: str) -> str:
    """The column of a metric: its name, unless a column of the table has it."""
    taken = name in RESERVED or name.startswith("x/")
    return f"{METRIC}{name}" if taken else name


RESERVED = frozenset(("source", "run", *PLACE_COLUMNS, *OWN))


def drop_own_columns(row: Row) -> Row:
    return {name: value for name, value in row.items() if name not in OWN}


def key_columns(runs: Sequence[Placed]) -> list[str]:
    """The columns that come first, also in a table without rows."""
    found = [name for run in runs[:1] for name in columns(run.record, run.place)]
    return found or ["source", "run"]


def optimizer_steps_per_round(place: Place) -> int | None:
    """N times T; None where the config lacks one of them."""
    per_round, passes = place.numbers["updates_per_round"], place.numbers["passes"]
    return None if per_round is None or passes is None else per_round * passes


def make_frame(rows: Sequence[Mapping[str, Any]], first: Sequence[str]) -> pd.DataFrame:
    """A table of rows: whole numbers with gaps stay whole, everything measured is float64, texts
    among numbers are left empty (`check_numbers` reports them)."""
    read = pd.DataFrame(rows)
    names = [*first, *(name for name in read if name not in first)]
    return pd.DataFrame({name: column_of_type(read, name) for name in names}, index=read.index)


def column_of_type(read: pd.DataFrame, name: str) -> Any:
    """A column in one type; of no row where no row has it."""
    held = read[name] if name in read else pd.Series(None, index=read.index, dtype="object")
    if name in WHOLE:
        return held.astype("Int64")
    if held.dtype != "object":
        return held.astype(np.float64)
    values = held.to_numpy()
    if any(isinstance(value, int | float) and value == value for value in values):
        # Texts would be parsed as numbers, which they were not recorded as.
        return np.array([None if isinstance(one, str) else one for one in values], dtype=np.float64)
    if name.startswith("x/") and not any(isinstance(value, str) for value in values):
        return np.full(len(values), math.nan)
    return pd.array(["" if pd.isna(value) else str(value) for value in values], dtype="object")


def check_numbers(runs: Sequence[Placed]) -> list[Finding]:
    """A finding for each text where other rows have numbers: the column leaves it out."""
    numeric: set[str] = set()
    texts: dict[str, list[tuple[Placed, Cell]]] = {}
    for run in runs:
        for row in (*run.record.rounds, *run.record.evals):
            for name, value in row.items():
                if isinstance(value, str):
                    texts.setdefault(name, []).append((run, value))
                else:
                    numeric.add(name)
    found: dict[tuple[str, str], Finding] = {}
    for name in sorted(numeric & set(texts)):
        for run, value in texts[name]:
            what = f"{name} is {value!r} where it is a number elsewhere: that value is left out"
            one = Finding(Kind.not_a_number, run.record.run, run.record.place, what)
            found.setdefault((run.record.run, name), one)
    return list(found.values())

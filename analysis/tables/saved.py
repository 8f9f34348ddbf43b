"""Read tables that were saved back as run records."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from rlhf_lab.runs.reading import Unreadable, checked, parse_json
from rlhf_lab_analysis.sources.axes import COLUMNS as AXES
from rlhf_lab_analysis.sources.damage import read_below, read_or_report
from rlhf_lab_analysis.sources.findings import Finding, Kind
from rlhf_lab_analysis.sources.record import (
    EXACT,
    Facts,
    Reading,
    Record,
    Row,
    Source,
    joined,
    whole,
)
from rlhf_lab_analysis.tables.frames import METRIC, OWN
from rlhf_lab_analysis.tables.store import TEXTS, load, set_of

T = TypeVar("T")

# Findings that are read from the saved table; all others are derived again from the runs.
STORED_KINDS = (Kind.damaged, Kind.absent, Kind.not_finite, Kind.not_a_number)
LAST_AXIS = AXES[-1]
SIGNS = (".runs.parquet", ".runs.csv")


def read_saved(place: Path) -> Reading:
    """The runs of the tables saved at a path, or of all tables in a folder. Tables may have been
    saved with fewer points than were recorded. Damaged or incomplete tables become a finding."""
    return read_below(place, lambda path: path.name.endswith(SIGNS), read_one)


def read_one(file: Path) -> Reading:
    """The runs of the tables that were saved together, by the file of any of them. Raises
    Unreadable."""
    path = set_of(file)
    tables = load(path)
    points, versions = (rows_by_run(frame) for frame in (tables.points, tables.versions))
    stored = [one for one in tables.findings if one.kind in STORED_KINDS]

    def read_run(row: Mapping[Any, Any]) -> Reading:
        own = [one for one in stored if one.run == row["run"]]
        return Reading((record_of(row, points, versions, own, path),))

    rows = tables.runs.to_dict("records")
    read = joined(read_or_report(partial(read_run, row), str(row["run"])) for row in rows)
    ids = {record.run for record in read.records}
    return Reading(read.records, (*read.findings, *(one for one in stored if one.run not in ids)))


def rows_by_run(frame: pd.DataFrame) -> dict[str, list[Row]]:
    """The recorded rows of each run, in order, under the names of its source: empty values left
    out. Columns up to the last axis are left out: they describe the run, or are derived from the
    columns after them."""
    names = list(frame.columns)
    labels = [name for name in OWN if name in names]
    metrics = names[names.index(LAST_AXIS) + 1 :]
    columns = [frame[name].tolist() for name in labels]
    columns += [recorded_values(frame[name]) for name in metrics]
    shown = [*labels, *(name.removeprefix(METRIC) for name in metrics)]
    found: dict[str, list[Row]] = {}
    for run, *cells in zip(frame["run"], *columns, strict=True):
        row = {name: value for name, value in zip(shown, cells, strict=True) if value is not None}
        found.setdefault(str(run), []).append(row)
    return found


def record_of(
    row: Mapping[Any, Any],
    points: Mapping[str, list[Row]],
    versions: Mapping[str, list[Row]],
    findings: Sequence[Finding],
    path: Path,
) -> Record:
    """A row of the runs with its points and versions as a record. Raises Unreadable."""
    run = str(row["run"])
    about = f"run {run[:40]}"
    if row["source"] not in list(Source):
        raise Unreadable(path, f"its source is {str(row['source'])[:40]!r}", about)
    config = json_cell(row, "config", dict[str, Any], path)
    facts = Facts(
        **{name: str(row[name]) for name in TEXTS},
        kernels=str(row.get("kernels", "")),  # older tables have none of these
        precision=str(row.get("precision", "")),
        changed=frozenset(json_cell(row, "changed", list[str], path))
        if row.get("changed")
        else None,
        seed=whole_cell(row, "seed", path),
        tags=tuple(json_cell(row, "tags", list[str], path)),
        planned_rounds=whole_cell(row, "planned_rounds", path),
    )
    place, source = str(row["place"]), Source(row["source"])
    rounds, evals = points.get(run, []), versions.get(run, [])
    return Record(source, run, place, facts, config, rounds, evals, tuple(findings))


def json_cell(row: Mapping[Any, Any], name: str, kind: type[T], path: Path) -> T:
    """The parsed value of a column of JSON. Raises Unreadable."""
    place = f"run {str(row['run'])[:40]}, column {name}"
    return parse_json(checked(row[name], str, path, place), kind, path, place)


def whole_cell(row: Mapping[Any, Any], name: str, path: Path) -> int | None:
    """A whole number, None where there is none. Raises Unreadable at anything else."""
    value = row[name]
    if value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value)):
        return None
    number = whole(value.item() if isinstance(value, np.generic) else value)
    if number is None:
        place = f"run {str(row['run'])[:40]}, column {name}"
        raise Unreadable(path, f"no whole number, {str(value)[:40]!r}", place)
    return number


def recorded_values(column: pd.Series) -> list[Any]:
    """The values of a column: None for those that were not recorded, whole numbers as int."""
    if column.dtype != np.float64:
        return [None if is_empty(value) else plain(value) for value in column]
    numbers = column.to_numpy()
    values: list[Any] = numbers.tolist()
    for place in np.flatnonzero(np.isnan(numbers)):
        values[place] = None
    is_whole = (np.abs(numbers) <= EXACT) & (numbers == np.floor(numbers))
    for place in np.flatnonzero(is_whole):
        values[place] = int(values[place])
    return values


def plain(value: Any) -> Any:
    """A cell of a column of several kinds."""
    if isinstance(value, np.generic):
        value = value.item()
    is_whole = isinstance(value, float) and value.is_integer() and abs(value) <= EXACT
    return int(value) if is_whole else value


def is_empty(value: Any) -> bool:
    """Whether a value stands for a value that was not recorded."""
    if isinstance(value, str):
        return not value
    return value is None or (isinstance(value, float) and math.isnan(value))

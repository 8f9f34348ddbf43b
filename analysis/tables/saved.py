"""Tables that were saved as Parquet, read again as runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from analysis.sources.axes import COLUMNS as AXES
from analysis.sources.damage import readable
from analysis.sources.findings import Finding, Kind
from analysis.sources.record import EXACT, Facts, Reading, Record, Row, Source, joined, whole
from analysis.tables.frames import METRIC, OWN
from analysis.tables.store import TEXTS, load
from rlhf_lab.runs.reading import Unreadable, checked, parse_json

T = TypeVar("T")

# What cannot be seen in the tables any more; everything else is found again.
NOT_SEEN_AGAIN = (Kind.damaged, Kind.absent, Kind.not_finite, Kind.not_a_number)
LAST_AXIS = AXES[-1]
SIGN, END = ".runs.parquet", ".parquet"


def read_saved(place: Path) -> Reading:
    """The runs of the tables saved at a path, or of all in a folder. Numbers are those of the
    tables, which may have been thinned out. Tables that are damaged or not whole are a finding."""
    if place.is_file():
        return readable(partial(read_one, place))
    found = sorted(place.rglob(f"*{SIGN}"))
    paths = [path.with_name(path.name.removesuffix(SIGN) + END) for path in found]
    return joined(readable(partial(read_one, path)) for path in paths)


def read_one(path: Path) -> Reading:
    """The runs of the tables that were saved under one name. Raises Unreadable."""
    tables = load(path)
    points, versions = (by_run(frame) for frame in (tables.points, tables.versions))
    told = [one for one in tables.findings if one.kind in NOT_SEEN_AGAIN]

    def read_run(row: Mapping[Any, Any]) -> Reading:
        own = [one for one in told if one.run == row["run"]]
        return Reading((record_of(row, points, versions, own, path),))

    rows = tables.runs.to_dict("records")
    read = joined(readable(partial(read_run, row), str(row["run"])) for row in rows)
    ids = {record.run for record in read.records}
    return Reading(read.records, (*read.findings, *(one for one in told if one.run not in ids)))


def by_run(frame: pd.DataFrame) -> dict[str, list[Row]]:
    """What was recorded of each run, in order, under the names of its source. Columns before the
    axes are of the run, and the axes were worked out from columns that follow them."""
    names = list(frame.columns)
    own = [name for name in OWN if name in names]
    kept = frame[["run", *own, *names[names.index(LAST_AXIS) + 1 :]]]
    return {
        str(run): [measured(row) for row in rows.to_dict("records")]
        for run, rows in kept.groupby("run", sort=False)
    }


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
        kernels=str(row.get("kernels", "")),  # older tables have none
        seed=whole_cell(row, "seed", path),
        tags=tuple(json_cell(row, "tags", list[str], path)),
        planned_rounds=whole_cell(row, "planned_rounds", path),
    )
    place, source = str(row["place"]), Source(row["source"])
    rounds, evals = points.get(run, []), versions.get(run, [])
    return Record(source, run, place, facts, config, rounds, evals, tuple(findings))


def json_cell(row: Mapping[Any, Any], name: str, kind: type[T], path: Path) -> T:
    """What a column of JSON holds."""
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


def measured(row: Mapping[Any, Any]) -> Row:
    """A row without what is not there, and with whole numbers as such."""
    named = {str(name).removeprefix(METRIC): value for name, value in row.items() if name != "run"}
    label = {name: named.pop(name) for name in OWN if name in named}
    return label | {name: plain(value) for name, value in named.items() if not is_empty(value)}


def plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    is_whole = isinstance(value, float) and value.is_integer() and abs(value) <= EXACT
    return int(value) if is_whole else value


def is_empty(value: Any) -> bool:
    """Whether a row has nothing in a column that others have."""
    if isinstance(value, str):
        return not value
    return value is None or (isinstance(value, float) and math.isnan(value))

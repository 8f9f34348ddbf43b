"""Tables that were saved as Parquet, read again as runs."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.tables.axes import COLUMNS as AXES
from analysis.tables.findings import Finding, Kind
from analysis.tables.frames import METRIC, OWN
from analysis.tables.record import EXACT, Facts, Reading, Record, Row, Source, joined
from analysis.tables.store import load

# What cannot be seen in the tables any more; everything else is found again.
NOT_SEEN_AGAIN = (Kind.damaged, Kind.absent, Kind.not_finite, Kind.not_a_number)
TEXTS = (
    "state", "name", "sweep", "swept", "project", "job_type", "code", "content", "commit",
    "started", "step", "machine", "legend",
)  # fmt: skip
LAST_AXIS = AXES[-1]
SIGN, END = ".runs.parquet", ".parquet"


def read_saved(place: Path) -> Reading:
    """The runs of the tables saved at a path, or of all in a folder. Numbers are those of the
    tables, which may have been thinned out. Raises UserError if a file of them is missing."""
    if place.is_file():
        return read_one(place)
    found = sorted(place.rglob(f"*{SIGN}"))
    return joined(read_one(path.with_name(path.name.removesuffix(SIGN) + END)) for path in found)


def read_one(path: Path) -> Reading:
    """The runs of the tables that were saved under one name."""
    tables = load(path)
    points, versions = (by_run(frame) for frame in (tables.points, tables.versions))
    told = [one for one in tables.findings if one.kind in NOT_SEEN_AGAIN]
    records = tuple(
        record_of(row, points, versions, [one for one in told if one.run == row["run"]])
        for row in tables.runs.to_dict("records")
    )
    ids = {record.run for record in records}
    return Reading(records, tuple(one for one in told if one.run not in ids))


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
) -> Record:
    """A row of the runs with its points and versions as a record."""
    run, config = str(row["run"]), json.loads(row["config"])
    facts = Facts(
        **{name: str(row[name]) for name in TEXTS},
        seed=whole(row["seed"]),
        tags=tuple(json.loads(row["tags"])),
        planned_rounds=whole(row["planned_rounds"]),
    )
    place, source = str(row["place"]), Source(row["source"])
    rounds, evals = points.get(run, []), versions.get(run, [])
    return Record(source, run, place, facts, config, rounds, evals, tuple(findings))


def whole(value: Any) -> int | None:
    return None if pd.isna(value) else int(value)


def measured(row: Mapping[Any, Any]) -> Row:
    """A row without what is not there, and with whole numbers as such."""
    named = {str(name).removeprefix(METRIC): value for name, value in row.items() if name != "run"}
    label = {name: named.pop(name) for name in OWN if name in named}
    return label | {name: plain(value) for name, value in named.items() if not is_empty(value)}


def plain(value: Any) -> Any:
    is_whole = isinstance(value, float) and value.is_integer() and abs(value) <= EXACT
    return int(value) if is_whole else value


def is_empty(value: Any) -> bool:
    """Whether a row has nothing in a column that others have."""
    if isinstance(value, str):
        return not value
    return value is None or (isinstance(value, float) and math.isnan(value))

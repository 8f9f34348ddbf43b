"""Runs from the offline database of Open RL Benchmark: DATASET/ENTITY/PROJECT/offline.sqlite."""

from __future__ import annotations

import csv
import json
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from analysis.tables.findings import Finding, Kind
from analysis.tables.history import facts, split
from analysis.tables.record import Reading, Record, Source, joined

DATABASE, TABLE, FACTS = "offline.sqlite", "run_df.csv", "run.json"
# In run_df.csv a value that was never logged is empty, and NaN is written out.
EMPTY = ""


def read_benchmark(root: Path) -> Reading:
    """Every run of the databases in a folder or below it."""
    return joined(read_database(path) for path in sorted(root.rglob(DATABASE)))


def read_database(path: Path) -> Reading:
    """The runs of one project. A run without a readable curve is a finding."""
    try:
        rows, tags = queried(path)
    except sqlite3.DatabaseError as error:
        return Reading((), (Finding(Kind.damaged, "", str(path), f"not readable: {error}"),))
    records, findings = [], []
    for row in rows:
        folder = path.parent / str(row["id"])
        try:
            records.append(record_of(row, tags.get(str(row["id"]), ()), folder))
        except (OSError, ValueError) as error:
            what = f"{folder.name}/{TABLE} cannot be read ({error})"
            findings.append(Finding(Kind.damaged, str(row["id"]), str(folder), what))
    return Reading(tuple(records), tuple(findings))


def queried(path: Path) -> tuple[list[dict[str, Any]], dict[str, tuple[str, ...]]]:
    """The rows of the table of runs, and each run's tags."""
    links = (
        "SELECT link.offlinerun_id, tag.name FROM tag_offlinerun_through AS link "
        "JOIN tag ON tag.id = link.tag_id ORDER BY tag.id"
    )
    # Opened as read-only: nothing is to be made of a path that is mistyped.
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as database:
        database.row_factory = sqlite3.Row
        rows = [dict(row) for row in database.execute("SELECT * FROM offlinerun ORDER BY rowid")]
        tags: dict[str, tuple[str, ...]] = {}
        for run, name in database.execute(links):
            tags[str(run)] = (*tags.get(str(run), ()), str(name))
    return rows, tags


def record_of(row: Mapping[str, Any], tags: Sequence[str], folder: Path) -> Record:
    """One run with its curve. Raises OSError or ValueError if the curve cannot be read."""
    config = json.loads(row["config"])
    rounds, evals = split(curve(folder / TABLE))
    known = facts(
        config,
        rounds or evals,
        state=str(row["state"]),
        name=str(row["name"]),
        project=f"{row['entity']}/{row['project']}",
        user=str(row["username"]),
        tags=tuple(tags),
        code=str(config.get("code") or ""),
        content=str(config.get("content") or ""),
    )
    return Record(Source.orb, str(row["id"]), str(folder), known, config, rounds, evals)


def curve(path: Path) -> list[dict[str, Any]]:
    """The rows of a run's history. The column without a name is the row's number."""
    csv.field_size_limit(2**27)
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return [
        {name: parsed(text) for name, text in row.items() if name and text not in (EMPTY, None)}
        for row in rows
    ]


def parsed(text: str) -> Any:
    """A number, or the text."""
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return text

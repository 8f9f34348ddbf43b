"""Read runs from Open RL Benchmark's offline database: DATASET/ENTITY/PROJECT/offline.sqlite."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from rlhf_lab.runs.reading import Unreadable, checked, file_size, parse_json
from rlhf_lab_analysis.sources.damage import CsvTable, csv_table, read_below, read_or_report
from rlhf_lab_analysis.sources.findings import Finding, Kind
from rlhf_lab_analysis.sources.history import split_history, wandb_facts
from rlhf_lab_analysis.sources.record import Reading, Record, Source, joined, parsed

BESIDE = ("-journal", "-wal", "-shm")
# In run_df.csv a value that was never logged is empty, and NaN is written out.
DATABASE, TABLE, FACTS = "offline.sqlite", "run_df.csv", "run.json"
# What is read of a run, beside its id.
NEEDED = ("name", "state", "username", "project", "entity", "config")


def read_benchmark(root: Path) -> Reading:
    """Every run of a database, or of those in a folder or below it."""
    return read_below(root, lambda path: path.name == DATABASE, read_database)


def read_database(path: Path) -> Reading:
    """The runs of one project. A run that cannot be read, or without a readable curve, is a
    finding. Raises Unreadable if the database is none."""
    try:
        rows, tags = read_rows(path)
    except sqlite3.Error as error:
        raise Unreadable(path, f"it is no database that can be read ({error})") from error
    return joined(
        read_or_report(partial(read_run, row, tags, path, number), str(row.get("id", "")))
        for number, row in enumerate(rows, start=1)
    )


def read_run(
    row: Mapping[str, Any], tags: Mapping[str, tuple[str, ...]], path: Path, number: int
) -> Reading:
    """One run of a database."""
    lacking = [name for name in ("id", *NEEDED) if name not in row]
    if lacking:
        raise Unreadable(path, f"its runs have no {', '.join(lacking)}", f"row {number}")
    run = str(row["id"])
    config = parse_json(
        checked(row["config"], str, path, f"run {run}, config"), dict[str, Any], path,
        f"run {run}, config",
    )  # fmt: skip
    return Reading((record_of(row, config, tags.get(run, ()), path.parent / run),))


def read_rows(path: Path) -> tuple[list[dict[str, Any]], dict[str, tuple[str, ...]]]:
    """The rows of the table of runs, and each run's tags."""
    links = (
        "SELECT link.offlinerun_id, tag.name FROM tag_offlinerun_through AS link "
        "JOIN tag ON tag.id = link.tag_id ORDER BY tag.id"
    )
    # SQLite waits for ever at a pipe, also in the place of its own files beside the database.
    for place in (path, *(path.with_name(path.name + end) for end in BESIDE)):
        if place == path or place.exists():
            file_size(place)
    # Opened as read-only: nothing is to be made of a path that is mistyped.
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as database:
        database.row_factory = sqlite3.Row
        rows = [dict(row) for row in database.execute("SELECT * FROM offlinerun ORDER BY rowid")]
        tags: dict[str, tuple[str, ...]] = {}
        for run, name in database.execute(links):
            tags[str(run)] = (*tags.get(str(run), ()), str(name))
    return rows, tags


def record_of(
    row: Mapping[str, Any], config: Mapping[str, Any], tags: Sequence[str], folder: Path
) -> Record:
    """One run with its curve. Raises Unreadable if the curve cannot be read."""
    table = csv_table(folder / TABLE)
    rounds, evals = split_history(curve(table))
    known = wandb_facts(
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
    run, place = str(row["id"]), str(folder)
    findings = (Finding(Kind.damaged, run, place, f"{TABLE}: {what}") for what in table.problems)
    return Record(Source.orb, run, place, known, config, rounds, evals, tuple(findings))


def curve(table: CsvTable) -> list[dict[str, Any]]:
    """The rows of a run's history."""
    return [{name: parsed(text) for name, text in row.items()} for _, row in table.rows]

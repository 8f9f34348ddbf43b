"""Export runs as Open RL Benchmark's offline database, which `openrlbenchmark.rlops --offline`
plots.

rlops reads only the folder `dataset` in its own package. The export can be written anywhere;
`link_command` returns the shell command that links it into that folder.
"""

from __future__ import annotations

import csv
import json
import math
import re
import shlex
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from rlhf_lab.runs.folder import LAST
from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.sources.axes import GLOBAL_STEP, RUNTIME, VersionAxes, axes_of
from rlhf_lab_analysis.sources.conditions import place_of
from rlhf_lab_analysis.sources.history import SAMPLE, STEP
from rlhf_lab_analysis.sources.open_rl_benchmark import DATABASE, FACTS, TABLE
from rlhf_lab_analysis.sources.record import Cell, Record
from rlhf_lab_analysis.tables.exported import Exported
from rlhf_lab_analysis.tables.frames import optimizer_steps_per_round

# As peewee would make them for openrlbenchmark 0.3.1.
SCHEMA = """
CREATE TABLE IF NOT EXISTS offlinerun (id VARCHAR(255) NOT NULL, name VARCHAR(255) NOT NULL,
    state VARCHAR(255) NOT NULL, url VARCHAR(255) NOT NULL, path TEXT NOT NULL,
    username VARCHAR(255) NOT NULL, project VARCHAR(255) NOT NULL, entity VARCHAR(255) NOT NULL,
    config TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS tag (id INTEGER PRIMARY KEY, name VARCHAR(255) NOT NULL);
CREATE TABLE IF NOT EXISTS tag_offlinerun_through (id INTEGER PRIMARY KEY, tag_id INTEGER NOT NULL,
    offlinerun_id INTEGER NOT NULL);
"""
COLUMNS = ("id", "name", "state", "url", "path", "username", "project", "entity", "config")
# rlops_multi_metrics asks for these keys with `.value` behind them.
ASKED = ("env_id", "exp_name", "condition")
NOT_IN_NAMES = re.compile(r"[^\w.=+-]+")


def write_benchmark(
    runs: Sequence[Exported], folder: Path, entity: str, project: str, user: str = "rlhf_lab"
) -> list[Path]:
    """Write runs to folder/entity/project, and return the run's folders; runs that are there
    already under their id are written anew. Raises UserError on names that make no path."""
    for name, text in (("entity", entity), ("project", project)):
        if not text or "/" in text or text.startswith("."):
            raise UserError(f"{name}={text!r} names no folder: choose letters, digits, - and _")
    root = folder / entity / project
    root.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(root / DATABASE)) as database, database:
        database.executescript(SCHEMA)
        for run in runs:
            facts = run_facts(run, entity, project, user)
            replace_run(database, facts)
            write_run(root / facts["id"], run.record, facts)
    return [root / file_name(run.record.run) for run in runs]


def file_name(run: str) -> str:
    """A run's id as the name of its folder, which rlops takes it for."""
    return NOT_IN_NAMES.sub("_", run)


def run_facts(run: Exported, entity: str, project: str, user: str) -> dict[str, Any]:
    """The content of a run's run.json."""
    record = run.record
    place, facts = place_of(record), record.facts
    names = {"env_id": place.env, "exp_name": place.experiment, "condition": run.condition}
    names |= {f"{key}.value": names[key] for key in ASKED}
    own = {
        "seed": place.seed,
        "stage_seed": place.stage_seed,
        "code": facts.code,
        "content": facts.content,
    }
    return {
        "id": file_name(record.run),
        "name": facts.name or Path(record.place).name,
        "state": facts.state,
        "url": record.place,
        "project": project,
        "entity": entity,
        "config": {**record.config, **own, **names},
        "tags": list(facts.tags),
        "path": [entity, project, file_name(record.run)],
        "user": {"username": user, "name": user},
    }


def replace_run(database: sqlite3.Connection, facts: Mapping[str, Any]) -> None:
    """Write a run's row and tags into the database; older ones of the same id are deleted."""
    run, flat = facts["id"], {**facts, "username": facts["user"]["username"]}
    texts = {**flat, "path": json.dumps(facts["path"]), "config": json.dumps(facts["config"])}
    database.execute("DELETE FROM offlinerun WHERE id = ?", (run,))
    database.execute("DELETE FROM tag_offlinerun_through WHERE offlinerun_id = ?", (run,))
    marks = ", ".join("?" * len(COLUMNS))
    database.execute(
        f"INSERT INTO offlinerun ({', '.join(COLUMNS)}) VALUES ({marks})",
        [texts[name] for name in COLUMNS],
    )
    for tag in facts["tags"]:
        found = database.execute("SELECT id FROM tag WHERE name = ?", (tag,)).fetchone()
        number = found or (database.execute("INSERT INTO tag (name) VALUES (?)", (tag,)).lastrowid,)
        # Its query compares this column with the run's own id, which is a text.
        database.execute(
            "INSERT INTO tag_offlinerun_through (tag_id, offlinerun_id) VALUES (?, ?)",
            (number[0], run),
        )


def write_run(folder: Path, record: Record, facts: Mapping[str, Any]) -> None:
    """Write run.json and run_df.csv."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FACTS).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    rows = history_rows(record)
    names = list(dict.fromkeys(name for row in rows for name in row))
    with (folder / TABLE).open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, ["", *names], restval="")
        writer.writeheader()
        for number, row in enumerate(rows):
            writer.writerow({"": number, **{name: text_of(value) for name, value in row.items()}})


def text_of(value: Cell) -> str:
    """A cell as text; numbers are written so that reading gives the same number."""
    return value if isinstance(value, str) else repr(value)


def history_rows(record: Record) -> list[dict[str, Cell]]:
    """Rounds, then evaluated versions, as one history: global_step in updates, _runtime in
    seconds of training, not those of the tracker's clock. The last row is the evaluation of the
    last version on more prompts, where there is one: that is the end in all of our tables."""
    axes = VersionAxes(record, optimizer_steps_per_round(place_of(record)))
    rows: list[dict[str, Cell]] = []
    for row in record.rounds:
        rows.append({**row, **plot_columns(len(rows), axes_of(row, record.facts.step))})
    on_the_way = [row for row in record.evals if not row.get("label")]
    at_the_end = [row for row in record.evals if row.get("label") == LAST]
    for row in (*on_the_way, *at_the_end):
        point, _ = axes.at(int(row["version"]))
        named = {
            f"eval/{n}" if n.startswith(SAMPLE) else n: v
            for n, v in row.items()
            if n != "label" or v
        }
        rows.append({**named, **plot_columns(len(rows), point)})
    return rows


def plot_columns(number: int, point: Mapping[str, float]) -> dict[str, Cell]:
    """The columns that rlops uses as x-axes."""
    updates = point["x/step"] if math.isnan(point["x/updates"]) else point["x/updates"]
    return {STEP: number, GLOBAL_STEP: updates, RUNTIME: point["x/wall_seconds"]}


def link_command(folder: Path, entity: str) -> str:
    """The shell command that links an exported folder into the one that rlops reads."""
    own = "$(python -c 'import openrlbenchmark; print(openrlbenchmark.__path__[0])')/dataset"
    source = shlex.quote(str(folder.resolve() / entity))
    return f'mkdir -p "{own}" && ln -sfn {source} "{own}/"'

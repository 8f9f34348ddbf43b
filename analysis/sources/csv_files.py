"""Read runs from CSV files with the columns of docs/results.md: a row is a point or a version.

`run` is required. `seed`, `env_id`, `exp_name`, `state`, `version` and `label` are what they are in
the tables, `config.KEY` is a value of the config, and axes are given in the units of their names.
Every other column is a metric. A row with a `version` is an evaluation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rlhf_lab.runs.reading import Unreadable
from rlhf_lab_analysis.sources.axes import AXES, GLOBAL_STEP
from rlhf_lab_analysis.sources.axes import STEP as X_STEP
from rlhf_lab_analysis.sources.damage import csv_table, parsed, read_or_report
from rlhf_lab_analysis.sources.findings import Finding, Kind
from rlhf_lab_analysis.sources.history import wandb_facts
from rlhf_lab_analysis.sources.record import (
    Reading,
    Record,
    Row,
    Source,
    as_seed,
    cell,
    flat,
    joined,
    whole,
)

PATTERN = "*.csv"
CONFIG = "config."
# Characters of a value in a message.
SHOWN = 200
ABOUT = ("seed", "env_id", "exp_name")
OWN = ("run", "state", *ABOUT)
# Other units of the same axes, and what one of them is in the ledger's.
UNITS = {
    "x/wall_seconds": ("seconds/wall", 1.0),
    "x/wall_minutes": ("seconds/wall", 60.0),
    "x/wall_hours": ("seconds/wall", 3600.0),
    "x/device_seconds": ("seconds/device", 1.0),
    "x/device_hours": ("seconds/device", 3600.0),
}
KEYS = {axis.column: (axis.key, 1.0) for axis in AXES} | UNITS | {X_STEP: (GLOBAL_STEP, 1.0)}


Numbered = tuple[int, dict[str, str]]


def read_csv(root: Path) -> Reading:
    """The runs of a file, or of those in a folder or below it. A damaged file is a finding."""
    paths = [root] if root.is_file() else sorted(root.rglob(PATTERN))
    return joined(read_or_report(partial(read_file, path)) for path in paths)


def read_file(path: Path) -> Reading:
    """The runs of one file, as far as it can be read. Raises Unreadable if it has no column `run`,
    or one twice."""
    table = csv_table(path)
    require_columns(table.names, path)
    runs = dict[str, list[Numbered]]()
    for number, row in table.rows:
        runs.setdefault(row.pop("run", ""), []).append((number, row))
    findings = (Finding(Kind.damaged, "", str(path), what) for what in table.problems)
    return Reading(tuple(record_of(run, rows, path) for run, rows in runs.items()), tuple(findings))


def require_columns(names: Sequence[str], path: Path) -> None:
    """Refuse a table without runs, or with a column twice."""
    if "run" not in names:
        shown = str(names)
        more = "" if len(shown) <= SHOWN else " ..."
        raise Unreadable(
            path, f"it has no column `run` (it has {shown[:SHOWN]}{more}): see docs/results.md"
        )
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise Unreadable(path, f"it has the column {twice[0]} twice: rename one of them")


def record_of(run: str, numbered: Sequence[Numbered], path: Path) -> Record:
    """One run of a file. Its id has the file's name, since other files may number theirs alike."""
    rows = [row for _, row in numbered]
    config: dict[str, Any] = {}
    for row in rows:
        config |= {name: row[name] for name in ABOUT if name in row}
        config |= {
            name[len(CONFIG) :]: text for name, text in row.items() if name.startswith(CONFIG)
        }
    states = [row["state"] for row in rows if "state" in row]
    points = [as_row(row) for row in rows if "version" not in row]
    found = [*changed(rows, run, path)]
    evals: list[Row] = []
    for number, row in numbered:
        if "version" not in row:
            continue
        version = whole(parsed(row["version"]))
        if version is None:
            what = f"line {number}: version {row['version'][:SHOWN]!r} is no whole number: left out"
            found.append(Finding(Kind.damaged, f"{path.name}:{run}", str(path), what))
            continue
        evals.append({"label": row.get("label", ""), **as_row(row), "version": version})
    known = wandb_facts(
        config, points, state=states[-1] if states else "unknown", project=path.name
    )
    return Record(
        Source.csv, f"{path.name}:{run}", str(path), known, config, points, evals, tuple(found)
    )


def as_row(row: Mapping[str, str]) -> Row:
    """The measured columns of a row, axes under the ledger's names."""
    found: dict[str, Any] = {}
    for name, text in row.items():
        if name in OWN or name.startswith(CONFIG) or name in ("label", "version"):
            continue
        value = parsed(text)
        key, scale = KEYS.get(name, (name, 1.0))
        number = cell(value)
        found[key] = value if isinstance(number, str) or scale == 1.0 else number * scale
    return flat(found)


def changed(rows: Sequence[Mapping[str, str]], run: str, path: Path) -> tuple[Finding, ...]:
    """Columns about the whole run that change within it: the last value is taken."""
    found = []
    for name in ABOUT:
        values = list(dict.fromkeys(row[name] for row in rows if name in row))
        if len(values) > 1:
            what = f"{name} of run {run} is {' and '.join(values)[:SHOWN]}: the last one is taken"
            found.append(Finding(Kind.other_config, f"{path.name}:{run}", str(path), what))
        if name == "seed" and values and as_seed(values[-1]) is None:
            what = f"seed {values[-1][:SHOWN]!r} of run {run} is no whole number"
            found.append(Finding(Kind.no_seed, f"{path.name}:{run}", str(path), what))
    return tuple(found)

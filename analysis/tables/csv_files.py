"""Runs from CSV files with the columns of docs/tables.md, one row a recorded point or version.

`run` is required. `seed`, `env_id`, `exp_name`, `state`, `version` and `label` are what they are in
the tables, `config.KEY` is a value of the config, and axes are given in the units of their names.
Every other column is a metric. A row with a `version` is an evaluation.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from analysis.tables.axes import AXES, GLOBAL_STEP
from analysis.tables.axes import STEP as X_STEP
from analysis.tables.findings import Finding, Kind
from analysis.tables.history import facts
from analysis.tables.record import Reading, Record, Row, Source, as_seed, flat, joined
from rlhf_lab.types import UserError

PATTERN = "*.csv"
CONFIG = "config."
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


def read_csv(root: Path) -> Reading:
    """The runs of a file, or of those in a folder or below it."""
    paths = [root] if root.is_file() else sorted(root.rglob(PATTERN))
    return joined(read_file(path) for path in paths)


def read_file(path: Path) -> Reading:
    """The runs of one file. Raises UserError if it has no column `run`, or one twice."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        lines = [line for line in csv.reader(file) if line]
    names = lines[0] if lines else []
    if "run" not in names:
        raise UserError(f"{path} has no column `run` (it has {names}): see docs/tables.md")
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UserError(f"{path} has the column {twice[0]} twice: rename one of them")
    findings, runs = [], dict[str, list[dict[str, str]]]()
    for number, line in enumerate(lines[1:], start=2):
        if len(line) != len(names):
            what = f"line {number} has {len(line)} of {len(names)} values and is left out"
            findings.append(Finding(Kind.damaged, "", str(path), what))
            continue
        row = {name: text for name, text in zip(names, line, strict=True) if text}
        runs.setdefault(row.pop("run", ""), []).append(row)
    return Reading(tuple(record_of(run, rows, path) for run, rows in runs.items()), tuple(findings))


def record_of(run: str, rows: Sequence[Mapping[str, str]], path: Path) -> Record:
    """One run of a file. Its id has the file's name, since other files may number theirs alike."""
    config: dict[str, Any] = {}
    for row in rows:
        config |= {name: row[name] for name in ABOUT if name in row}
        config |= {
            name[len(CONFIG) :]: text for name, text in row.items() if name.startswith(CONFIG)
        }
    states = [row["state"] for row in rows if "state" in row]
    points = [as_row(row) for row in rows if "version" not in row]
    evals: list[Row] = [
        {"label": row.get("label", ""), **as_row(row), "version": int(float(row["version"]))}
        for row in rows
        if "version" in row
    ]
    known = facts(config, points, state=states[-1] if states else "unknown", project=path.name)
    return Record(
        Source.csv, f"{path.name}:{run}", str(path), known, config, points, evals,
        changed(rows, run, path),
    )  # fmt: skip


def as_row(row: Mapping[str, str]) -> Row:
    """The measured columns of a row, axes under the ledger's names."""
    found: dict[str, Any] = {}
    for name, text in row.items():
        if name in OWN or name.startswith(CONFIG) or name in ("label", "version"):
            continue
        value = parsed(text)
        key, scale = KEYS.get(name, (name, 1.0))
        found[key] = value * scale if isinstance(value, int | float) and scale != 1.0 else value
    return flat(found)


def parsed(text: str) -> int | float | str:
    """A number, or the text."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def changed(rows: Sequence[Mapping[str, str]], run: str, path: Path) -> tuple[Finding, ...]:
    """Columns about the whole run that change within it: the last value is taken."""
    found = []
    for name in ABOUT:
        values = list(dict.fromkeys(row[name] for row in rows if name in row))
        if len(values) > 1:
            what = f"{name} of run {run} is {' and '.join(values)}: the last one is taken"
            found.append(Finding(Kind.other_config, f"{path.name}:{run}", str(path), what))
        if name == "seed" and values and as_seed(values[-1]) is None:
            what = f"seed {values[-1]!r} of run {run} is no whole number"
            found.append(Finding(Kind.no_seed, f"{path.name}:{run}", str(path), what))
    return tuple(found)

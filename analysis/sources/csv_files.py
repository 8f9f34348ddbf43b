"""Read runs from CSV files with the columns of docs/results.md: a row is a point or a version.

`run` is required. `seed`, `env_id`, `exp_name`, `state`, `version` and `label` are what they are in
the tables, `config.KEY` is a value of the config, and axes are given in the units of their names.
Every other column is a metric. A row with a `version` is an evaluation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

from rlhf_lab.runs.reading import Unreadable
from rlhf_lab_analysis.sources.axes import AXES, GLOBAL_STEP
from rlhf_lab_analysis.sources.axes import STEP as X_STEP
from rlhf_lab_analysis.sources.damage import csv_table, read_below
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
    parsed,
    whole,
)

END = ".csv"
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
# Digits behind what people write before them: 0,51, ~3, $4, .5 and the like.
LIKE_A_NUMBER = re.compile(r"[^\w\s]{0,2}\s?\d")


def read_csv(root: Path, is_other: Callable[[Path], bool] = lambda path: False) -> Reading:
    """The runs of a file, or of those in a folder or below it. A damaged file is a finding.
    is_other: leaves out files of the folder that are of another kind."""
    return read_below(root, lambda path: path.suffix == END and not is_other(path), read_file)


def read_file(path: Path) -> Reading:
    """The runs of one file, as far as it can be read. Raises Unreadable if it has no column `run`,
    or one twice."""
    table = csv_table(path)
    require_columns(table.names, path)
    runs = dict[str, list[Numbered]]()
    for number, row in table.rows:
        if run := row.pop("run", ""):
            runs.setdefault(run, []).append((number, row))
        else:
            table.problems.append(f"line {number} has no run and is left out")
    measured = measured_columns([row for _, row in table.rows])
    records = (record_of(run, rows, measured, path) for run, rows in runs.items())
    findings = (Finding(Kind.damaged, "", str(path), what) for what in table.problems)
    return Reading(tuple(records), tuple(findings))


def require_columns(names: Sequence[str], path: Path) -> None:
    """Refuse a table without runs, or with a column twice."""
    if "run" not in names:
        shown = str(names)
        more = "" if len(shown) <= SHOWN else " ..."
        raise Unreadable(
            path, f"it has no column `run` (it has {shown[:SHOWN]}{more}): see docs/results.md"
        )
    if twice := sorted({name for name in names if name and names.count(name) > 1}):
        raise Unreadable(path, f"it has the column {twice[0]} twice: rename one of them")


def measured_columns(rows: Sequence[Mapping[str, str]]) -> set[str]:
    """The columns that hold numbers: axes, and those in which a cell begins as a number does."""
    return {
        name
        for row in rows
        for name, text in row.items()
        if not is_about(name) and (name in KEYS or LIKE_A_NUMBER.match(text))
    }


def is_about(name: str) -> bool:
    """Whether a column is about a run or names a version, and is neither an axis nor a metric."""
    return name in (*OWN, "label", "version") or name.startswith(CONFIG)


def record_of(run: str, numbered: Sequence[Numbered], measured: Set[str], path: Path) -> Record:
    """One run of a file. Its id has the file's name, since other files may number theirs alike."""
    rows = [row for _, row in numbered]
    config: dict[str, Any] = {}
    for row in rows:
        config |= {name: row[name] for name in ABOUT if name in row}
        config |= {
            name[len(CONFIG) :]: text for name, text in row.items() if name.startswith(CONFIG)
        }
    states = [row["state"] for row in rows if "state" in row]
    found = [*changed(rows, run, path)]
    points, evals = list[Row](), list[Row]()
    problems: dict[str, list[str]] = {}
    for number, row in numbered:
        values = as_row(row, measured, f"line {number}", problems)
        if "version" not in row:
            points.append(values)
            continue
        version = whole(parsed(row["version"]))
        if version is None:
            what = f"line {number}: version {row['version'][:SHOWN]!r} is no whole number: left out"
            found.append(Finding(Kind.damaged, f"{path.name}:{run}", str(path), what))
            continue
        evals.append({"label": row.get("label", ""), **values, "version": version})
    for first, *others in problems.values():
        what = f"{first}; {len(others)} more cells of the column too" if others else first
        found.append(Finding(Kind.not_a_number, f"{path.name}:{run}", str(path), what))
    known = wandb_facts(
        config, points, state=states[-1] if states else "unknown", project=path.name
    )
    return Record(
        Source.csv, f"{path.name}:{run}", str(path), known, config, points, evals, tuple(found)
    )


def as_row(
    row: Mapping[str, str], measured: Set[str], place: str, problems: dict[str, list[str]]
) -> Row:
    """The axes and metrics of a row, axes under the ledger's names. problems: gets, by column, the
    cells of `measured` columns that are no plain number."""
    found: dict[str, Any] = {}
    for name, text in row.items():
        if is_about(name):
            continue
        value = parsed(text)
        if isinstance(value, str) and name in measured:
            share = parsed(text.removesuffix("%")) if text.endswith("%") else text
            what = f"{place}, column {name}: {text[:SHOWN]!r} is "
            if isinstance(share, str):
                what += "no number: it is left out (numbers are written as 0.51)"
                problems.setdefault(name, []).append(what)
                continue
            value = share / 100
            problems.setdefault(name, []).append(f"{what}read as {value:g}")
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

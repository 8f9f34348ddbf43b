"""Tabulate every run: its condition, its end, its machine, and its findings."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pandas as pd

from rlhf_lab_analysis.comparison.selection import Selection
from rlhf_lab_analysis.publication_tables.entries import Entry, Measured, PublicationTable
from rlhf_lab_analysis.publication_tables.options import TableOptions
from rlhf_lab_analysis.tables.table import Tables

COLUMNS = (
    *("run", "sweep", "environment", "condition", "seed", "role", "state", "counts"),
    *("rounds", "wall-clock, s", "device-hours", "code", "commit", "machine", "started"),
    "findings",
)


def run_list(tables: Tables, selection: Selection, _: TableOptions) -> list[PublicationTable]:
    """A row for each run, whether it counts in a comparison, and its findings by kind."""
    counted = {str(row["run"]) for cell in selection.cells for row in cell.runs.values()}
    kinds: dict[str, Counter[str]] = {}
    for finding in tables.findings:
        kinds.setdefault(finding.run, Counter())[str(finding.kind)] += 1
    rows = tuple(
        row_of(row, counted, kinds.get(str(row["run"]), Counter()))
        for row in tables.runs.to_dict("records")
    )
    of_none: dict[str, list[str]] = {}
    for one in tables.findings:
        if not one.run:
            of_none.setdefault(str(one.kind), []).append(one.line)
    warnings = [f"{len(lines)} times, first {lines[0]}" for lines in of_none.values()]
    caption = (
        f"Runs: {tables.overview}; {len(counted)} count in comparisons. Seconds and device-hours "
        "are of the whole run, evaluation left out."
    )
    return [PublicationTable("runs", caption, COLUMNS, rows, (*selection.left_out, *warnings))]


def row_of(row: Mapping[Any, Any], counted: set[str], kinds: Counter[str]) -> tuple[Entry, ...]:
    seed = None if pd.isna(row["seed"]) else int(row["seed"])
    found = ", ".join(f"{kind} {number}" if number > 1 else kind for kind, number in kinds.items())
    names = [str(row[name]) for name in ("run", "sweep", "env_id", "condition")]
    counts = "yes" if str(row["run"]) in counted else "no"
    spent = (number(row, "x/wall_seconds", 1), number(row, "x/device_hours", 4))
    origin = [str(row[name]) for name in ("code", "commit", "machine", "started")]
    state = (str(row.get("role", "")), str(row["state"]), counts)
    return (*names, seed, *state, int(row["points"]), *spent, *origin, found)


def number(row: Mapping[Any, Any], name: str, digits: int) -> Entry:
    """A cost; None where it is not known."""
    value = row.get(name)
    if value is None or math.isnan(value):
        return None
    return Measured(float(value), digits=digits)

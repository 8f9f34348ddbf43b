"""Tabulate every run: its condition, its end, its machine, and its findings."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pandas as pd

from rlhf_lab.runs.trackers.console import counted
from rlhf_lab_analysis.publication_tables.conditions import Conditions
from rlhf_lab_analysis.publication_tables.formats import Entry, Measured, PublicationTable
from rlhf_lab_analysis.publication_tables.options import Metric, TableOptions
from rlhf_lab_analysis.tables.table import Tables
from rlhf_lab_analysis.words import DEVICE_HOURS, WALL, head

COLUMNS = (
    *("run", "sweep", "env_id", "condition", "stage_seed", "seed", "role", "state", "counts"),
    *("points", WALL, DEVICE_HOURS, "code", "commit", "machine", "started", "findings"),
)


def run_list(tables: Tables, conditions: Conditions, _: TableOptions) -> list[PublicationTable]:
    """A row for each run, whether it counts in a comparison, and its findings by kind."""
    names = {
        str(one.row["run"]): conditions.title(cell)
        for cell in conditions.cells
        for one in cell.members.values()
    }
    kinds: dict[str, Counter[str]] = {}
    for finding in tables.findings:
        kinds.setdefault(finding.run, Counter())[str(finding.kind)] += 1
    runs = tables.runs.reindex(columns=[*COLUMNS])
    ids = runs["run"].astype(str)
    runs["condition"] = ids.map(names).fillna(runs["condition"])
    runs["counts"] = ids.isin([*names]).map({True: "yes", False: "no"})
    runs["findings"] = [kinds_text(kinds.get(one, Counter())) for one in ids]
    rows = tuple(
        tuple(entry(name, value) for name, value in zip(COLUMNS, row, strict=True))
        for row in runs.itertuples(index=False)
    )
    lines = [f"{kind} {number} times" for kind, number in kinds.get("", Counter()).items()]
    caption = (
        f"{counted(len(rows), 'run')}, of which {len(names)} count in comparisons. Seconds and "
        "device-hours are of the whole run, evaluation left out."
    )
    notes = (*conditions.selection.left_out, *lines)
    return [PublicationTable("runs", caption, tuple(map(head, COLUMNS)), rows, notes)]


def kinds_text(kinds: Counter[str]) -> str:
    return ", ".join(f"{kind} {number}" if number > 1 else kind for kind, number in kinds.items())


def entry(name: str, value: Any) -> Entry:
    """A value of a run; None where it is not known."""
    if pd.isna(value):
        return None
    if isinstance(value, float):
        return Measured(value, digits=Metric(name).digits)
    return value if isinstance(value, str) else int(value)

"""Write captions of figures: what is shown, of which runs, the last numbers, and warnings."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rlhf_lab_analysis.ranges import first_few, listed, unique
from rlhf_lab_analysis.shown_runs import runs_text
from rlhf_lab_analysis.words import label

COLUMNS = (
    "group condition part sweep env version x_name x x_low x_high y_name y low high n seeds "
    "interval verdict family"
).split()
Row = Mapping[str, Any]


def warning_texts(warnings: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Each warning once, with the conditions that it is about."""
    return tuple(
        f"{text} ({'; '.join(first_few(names, 'conditions'))})" if names else text
        for text, names in warnings.items()
    )


def last_numbers(rows: Sequence[Row]) -> list[str]:
    """The last point of each condition and metric: `ppo N=1: gold win-rate 0.5 [0.4, 0.6]`."""
    last = {
        tuple(row.get(key) for key in ("group", "condition", "part", "y_name")): row
        for row in rows
        if row.get("y_name")
    }
    return [
        f"{listed(filter(None, names))}: {label(str(metric))} {number(row)}"
        for (*names, metric), row in last.items()
    ]


def number(row: Row) -> str:
    """A value with its interval, where it has one."""
    low, high = row.get("low", math.nan), row.get("high", math.nan)
    if math.isnan(low) or math.isnan(high):
        return f"{row['y']:.3g}"
    return f"{row['y']:.3g} [{low:.3g}, {high:.3g}]"


def caption_of(
    first: str, rows: Sequence[Row], seeds: Mapping[str, tuple[int, ...]], notes: Sequence[str]
) -> str:
    """first: its first words. seeds: of each condition. notes: sentences after the intervals."""
    names = unique(row[key] for row in rows for key in ("x_name", "y_name") if row.get(key))
    intervals = unique(str(row["interval"]) for row in rows if row.get("interval"))
    parts = [
        f"{first}.",
        f"Shown: {listed(f'{label(name)} ({name})' for name in names)}." if names else "",
        f"{runs_text(seeds)}." if seeds else "",
        f"Intervals over seeds: {listed(intervals)}." if intervals else "",
        *notes,
    ]
    return " ".join(filter(None, parts))

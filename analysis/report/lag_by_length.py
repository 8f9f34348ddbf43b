"""How old samples of each length were: shares of lags, and of what was dropped, by length.

Only where chunks of one round may differ in age: there, long responses meet newer weights or come
too late, and what is learned depends on it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rlhf_lab.runs.folder import SCHEDULE
from rlhf_lab.runs.jsonl import read_rows
from rlhf_lab.runs.trackers.console import counted
from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.report.groups import Group

# Conditions of a page, ranges of lengths, and the lag from which all lags share a colour.
MOST_GROUPS, RANGES, LARGEST_LAG = 8, 5, 6
DROPPED = "dropped"
SHADES: Sequence[int | str] = (*range(LARGEST_LAG + 1), DROPPED)


@dataclass(frozen=True)
class Share:
    """A part of a bar. shade: 0 to LARGEST_LAG, or DROPPED. percent: of the range's chunks."""

    shade: int | str
    text: str
    percent: float


@dataclass(frozen=True)
class LagsOfLengths:
    """The chunks of a condition. group: its number in the page. rows: a name and the shares of
    each range of lengths, short ones first."""

    group: int
    title: str
    note: str
    rows: Sequence[tuple[str, Sequence[Share]]]


def lags_of_lengths(groups: Sequence[Group], ranked: Sequence[int]) -> list[LagsOfLengths]:
    """Of the first conditions in `ranked` in which chunks of one round differed in age."""
    found: list[LagsOfLengths] = []
    for place in ranked:
        if len(found) == MOST_GROUPS:
            break
        rows = [row for seed in groups[place].cell.seeds for row in schedule(groups[place], seed)]
        if rows:
            found.append(of_chunks(place, groups[place], rows))
    return found


def schedule(group: Group, seed: int) -> list[dict[str, Any]]:
    """The chunks of a run with their lengths; none where ages do not differ within a round, and
    none of a damaged file, which the findings list."""
    try:
        rows = read_rows(Path(str(group.cell.runs[seed]["place"])) / SCHEDULE)
    except UserError:
        return []
    timed = [row for row in rows if "steps" in row]
    ages = {(row["round"], oldest(row)) for row in timed}
    differ = len(ages) > len({round_ for round_, _ in ages}) or any(r["dropped"] for r in timed)
    return timed if differ else []


def oldest(row: Mapping[str, Any]) -> int:
    """The oldest version that wrote a chunk."""
    return int(row["segments"][0][1])


def of_chunks(place: int, group: Group, rows: Sequence[Mapping[str, Any]]) -> LagsOfLengths:
    lengths = np.array([row["steps"] for row in rows])
    edges = np.unique(
        np.quantile(lengths, np.linspace(0, 1, RANGES + 1)[1:], method="inverted_cdf")
    )
    ranges = np.searchsorted(edges, lengths)
    shown = []
    for number in np.unique(ranges):
        inside = [row for row, its in zip(rows, ranges, strict=True) if its == number]
        low, high = min(r["steps"] for r in inside), max(r["steps"] for r in inside)
        span = f"{low}" if low == high else f"{low} to {high}"
        shown.append((f"{span} tokens", shares(inside)))
    note = f"{counted(len(rows), 'chunk')} of {counted(len(group.cell.seeds), 'seed')}"
    return LagsOfLengths(place, group.title, note, shown)


def shares(rows: Sequence[Mapping[str, Any]]) -> list[Share]:
    """The lags of some chunks, small ones first, and what was dropped."""
    counts = Counter(
        DROPPED if row["dropped"] else min(row["round"] - oldest(row), LARGEST_LAG) for row in rows
    )
    return [
        Share(
            shade,
            f"{lag_text(shade)}: {counts[shade]} of {counted(len(rows), 'chunk')}",
            round(100 * counts[shade] / len(rows), 2),
        )
        for shade in SHADES
        if counts[shade]
    ]


def lag_text(shade: int | str) -> str:
    if shade == DROPPED:
        return "too old, dropped"
    return f"{counted(int(shade), 'round')} old{' or more' if shade == LARGEST_LAG else ''}"


LAG_LEGEND = [(shade, lag_text(shade)) for shade in SHADES]

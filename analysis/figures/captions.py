"""What a caption says: which runs, the numbers at the end, and what is doubtful."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from analysis.figures.names import label

COLUMNS = (
    "group condition part sweep env version x_name x x_low x_high y_name y low high n seeds "
    "interval verdict"
).split()
NAMED = 3


def seeds_told(held: Mapping[str, tuple[int, ...]]) -> str:
    """How many seeds stand behind each condition, and which; once if all have the same."""
    if not held:
        return ""
    places = {name.rpartition(" [")[2] for name in held}
    total = f"{sum(map(len, held.values()))} runs of {len(held)} conditions"
    if len(places) == 1:
        total += f" in {next(iter(places)).removesuffix(']')}"
        held = {name.rpartition(" [")[0]: seeds for name, seeds in held.items()}
    same: dict[tuple[int, ...], list[str]] = {}
    for name, seeds in held.items():
        same.setdefault(seeds, []).append(name)
    if len(same) == 1:
        seeds = next(iter(same))
        return f"{total}, n = {len(seeds)} each ({listed(seeds)})."
    each = "; ".join(
        f"n = {len(seeds)} ({listed(seeds)}): {', '.join(names)}" for seeds, names in same.items()
    )
    return f"{total}. {each}."


def listed(seeds: Sequence[int]) -> str:
    return f"seed{'' if len(seeds) == 1 else 's'} {', '.join(map(str, seeds))}"


def warnings_told(told: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Each warning once, with the conditions that it is about."""
    found = []
    for text, names in told.items():
        some = "; ".join(names[:NAMED])
        more = f" and {len(names) - NAMED} more conditions" if len(names) > NAMED else ""
        found.append(f"{text} ({some}{more})" if names else text)
    return tuple(found)


def last_numbers(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The last point of each condition and metric: `ppo N=1: gold win-rate 0.5 [0.4, 0.6]`."""
    last = {
        tuple(row.get(key) for key in ("group", "condition", "part", "y_name")): row
        for row in rows
        if row.get("y_name")
    }
    return [
        ", ".join(str(name) for name in (group, condition, part) if name)
        + f": {label(str(metric))} {number(row)}"
        for (group, condition, part, metric), row in last.items()
    ]


def number(row: Mapping[str, Any]) -> str:
    """A value with its interval, where it has one."""
    low, high = row.get("low", math.nan), row.get("high", math.nan)
    if math.isnan(low) or math.isnan(high):
        return f"{row['y']:.3g}"
    return f"{row['y']:.3g} [{low:.3g}, {high:.3g}]"

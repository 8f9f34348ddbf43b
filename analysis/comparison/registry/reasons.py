"""Find what runs lack to answer a question: values, equal settings, seeds, or evaluations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

from rlhf_lab_analysis.comparison.cell import Cell
from rlhf_lab_analysis.comparison.families import keys_of, order, rest_of, value_of
from rlhf_lab_analysis.comparison.registry.answers import Criteria
from rlhf_lab_analysis.comparison.selection import Selection
from rlhf_lab_analysis.ranges import ranges_text

# Enough pairs to find two conditions that nearly fit, of as many conditions as there may be.
MOST_CELLS = 40
MOST_NAMED = 3
# Parts that must differ: the values that are needed, or how many.
Varied = Mapping[str, Sequence[Any] | int]


def structure_reason(selection: Selection, varied: Varied) -> str:
    """What no comparison can be made of."""
    if not selection.cells:
        return "No run counts: the warnings have the reasons."
    missing, unlike = [], []
    for part, wanted in varied.items():
        values = {value_of(cell, part) for cell in selection.cells} - {None}
        found = sorted(values, key=order)
        number = wanted if isinstance(wanted, int) else 2
        needed = () if isinstance(wanted, int) else wanted
        if len(found) < number or not {*needed} <= values:
            missing.append(value_reason(key_of(part), found, needed, number))
        else:
            unlike.append(setting_reason(selection.cells, part, needed or found))
    return next(filter(None, [*missing, *unlike]), "It needs other runs than these.")


def value_reason(key: str, found: Sequence[Any], needed: Sequence[Any], number: int) -> str:
    """Which values of a part there are too few of."""
    need = " and ".join(f"{key}={value}" for value in needed) or f"{number} values of {key}"
    known = ", ".join(map(str, found)) or "not set"
    return f"It needs runs with {need}: {key} is {known} in all of these."


def setting_reason(cells: Sequence[Cell], part: str, needed: Sequence[Any]) -> str:
    """In what else the most similar conditions differ that differ in a part; "" if in nothing."""
    rests = [
        (value, dict(rest_of(cell, (part,))))
        for cell in cells[:MOST_CELLS]
        if (value := value_of(cell, part)) in needed
    ]
    apart = [
        (one, other, sorted({key for key, _ in a.items() ^ b.items()}))
        for (one, a), (other, b) in combinations(rests, 2)
        if one != other and a != b
    ]
    if not apart:
        return ""
    one, other, keys = min(apart, key=lambda pair: len(pair[2]))
    more = f" and {len(keys) - MOST_NAMED} more" if len(keys) > MOST_NAMED else ""
    also = ", ".join(keys[:MOST_NAMED]) + more
    key = key_of(part)
    return f"The runs with {key}={one} and {key}={other} differ in more than that: {also}."


def key_of(part: str) -> str:
    """The option that a part is set by on the command line."""
    return "mode.max_staleness" if part == "max_staleness" else keys_of(part)[0].rstrip(".")


def data_reason(compared: Sequence[Sequence[Cell]], criteria: Criteria) -> str:
    """Why conditions that differ as they should have no answer: seeds, or evaluations."""
    cells = [cell for one in compared for cell in one]
    for metric in (criteria.quality, criteria.drift):
        if lacking := [cell for cell in cells if not cell.has(metric)]:
            return (
                f"{lacking[0].condition} has no {metric} at some evaluated version: evaluate it "
                "again (rlhf-lab evaluate RUN)."
            )
    single = [cell for cell in cells if len(cell.seeds) < 2]
    if single:
        seeds = sorted({seed for cell in single for seed in cell.seeds})
        named = f"seed {seeds[0]} alone" if len(seeds) == 1 else f"one seed of {ranges_text(seeds)}"
        return f"It needs two seeds of each condition: these have {named} (add seed=1,2,3)."
    if all(len(set.intersection(*(set(c.seeds) for c in one))) < 2 for one in compared):
        return "It needs two seeds that the compared conditions have in common."
    return "The conditions are there, but not evaluated at the same points (eval.snapshots)."

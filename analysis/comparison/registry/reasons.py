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
    cells = selection.cells
    missing = [value_reason(cells, part, wanted) for part, wanted in varied.items()]
    unlike = [setting_reason(cells, part, wanted) for part, wanted in varied.items()]
    return next(filter(None, [*missing, *unlike]), "It needs other runs than these.")


def value_reason(cells: Sequence[Cell], part: str, wanted: Sequence[Any] | int) -> str:
    """Which values of a part there are too few of; "" if there are enough."""
    key, values = key_of(part), values_of(cells, part)
    number = wanted if isinstance(wanted, int) else 2
    needed = () if isinstance(wanted, int) else wanted
    if len(values) >= number and set(needed) <= set(values):
        return ""
    need = " and ".join(f"{key}={value}" for value in needed) or f"{number} values of {key}"
    found = ", ".join(map(str, values)) or "not set"
    return f"It needs runs with {need}: {key} is {found} in all of these."


def setting_reason(cells: Sequence[Cell], part: str, wanted: Sequence[Any] | int) -> str:
    """In what else the most similar conditions differ that differ in a part; "" if in nothing."""
    needed = values_of(cells, part) if isinstance(wanted, int) else wanted
    found = closest(cells, part, needed)
    if not found:
        return ""
    one, other, keys = found
    more = f" and {len(keys) - MOST_NAMED} more" if len(keys) > MOST_NAMED else ""
    also = ", ".join(keys[:MOST_NAMED]) + more
    key = key_of(part)
    return f"The runs with {key}={one} and {key}={other} differ in more than that: {also}."


def key_of(part: str) -> str:
    """The option that a part is set by on the command line."""
    return "mode.max_staleness" if part == "max_staleness" else keys_of(part)[0].rstrip(".")


def values_of(cells: Sequence[Cell], part: str) -> list[Any]:
    found = {value for cell in cells if (value := value_of(cell, part)) is not None}
    return sorted(found, key=order)


def closest(
    cells: Sequence[Cell], part: str, wanted: Sequence[Any]
) -> tuple[Any, Any, list[str]] | None:
    """Two values of a part, and the other keys in which the most similar conditions with them
    differ; None where no two differ in others."""
    rests = [
        (value, dict(rest_of(cell, (part,))))
        for cell in cells[:MOST_CELLS]
        if (value := value_of(cell, part)) in wanted
    ]
    found = [
        (one, other, sorted(key for key in {*a, *b} if a.get(key) != b.get(key)))
        for (one, a), (other, b) in combinations(rests, 2)
        if one != other
    ]
    return min((pair for pair in found if pair[2]), key=lambda pair: len(pair[2]), default=None)


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

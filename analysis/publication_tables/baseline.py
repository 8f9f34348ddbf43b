"""Find each condition's baseline: the same condition with other values of some parts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.comparison.cell import Cell
from rlhf_lab_analysis.comparison.families import rest_of
from rlhf_lab_analysis.comparison.selection import Selection
from rlhf_lab_analysis.ranges import listed, unique
from rlhf_lab_analysis.sources.conditions import LETTERS

NAMES = {letter: name for name, letter in LETTERS.items()}
BETWEEN = re.compile(r"[,\s]+")
# Where no baseline is named, a sweep's is the first of these parts that it varies.
USUAL: tuple[tuple[str, Any], ...] = (
    ("mode", "sync"),
    ("max_staleness", 0),
    ("updates_per_round", 1),
    ("passes", 1),
    ("group_size", 2),
    ("correction", "none"),
)


@dataclass(frozen=True, eq=False)
class Pair:
    """A condition and the one that it is compared with."""

    cell: Cell
    baseline: Cell


@dataclass(frozen=True)
class Baseline:
    """Values of parts that make a condition its own baseline. text: in words."""

    values: Mapping[str, Any]

    @property
    def text(self) -> str:
        return " ".join(f"{LETTERS.get(name, name)}={value}" for name, value in self.values.items())

    def of(self, cell: Cell, among: Selection) -> Cell | None:
        """The condition of the same sweep and environment with these values and else the same
        parts; of several, the one with the same other settings. None if there is none. Raises
        UserError if several are left."""
        wanted = {**cell.parts, **self.values}
        # Sync has no staleness, and fresh samples have nothing to correct.
        if self.values.get("mode") == "sync":
            wanted["max_staleness"] = 0
        is_fresh = {"mode": "sync", "max_staleness": 0}.items() & self.values.items()
        if is_fresh and "correction" not in self.values:
            wanted["correction"] = wanted["correction"] and "none"
        found = among.only(sweep=cell.sweep, env=cell.env, **wanted)
        if len(found.cells) > 1:
            changed = {name for name in wanted if wanted[name] != cell.parts.get(name)}
            varied = changed | self.values.keys()
            alike = [one for one in found.cells if rest_of(one, varied) == rest_of(cell, varied)]
            found = Selection(tuple(alike) or found.cells, found.left_out)
        return found.one(sweep=cell.sweep, env=cell.env, **wanted)


def parse_baseline(text: str, parts: Sequence[str]) -> Baseline:
    """`N=1`, `mode=sync` or `algo=ppo N=4`. Raises UserError for what is no part of a condition."""
    values: dict[str, Any] = {}
    for word in filter(None, BETWEEN.split(text)):
        name, equals, value = word.partition("=")
        part = NAMES.get(name, name)
        if not equals or part not in parts:
            raise UserError(
                f"--baseline {text}: {word} is no part of a condition; pass PART=VALUE with one of "
                f"{listed((*NAMES, *parts))}"
            )
        values[part] = whole(word, value) if part in LETTERS else value
    if not values:
        raise UserError("--baseline is empty: pass PART=VALUE, such as N=1 or mode=sync")
    return Baseline(values)


def whole(word: str, value: str) -> int:
    try:
        return int(value)
    except ValueError:
        raise UserError(f"--baseline {word}: pass a whole number") from None


def usual_baseline(selection: Selection) -> Baseline | None:
    """The usual one for the first part that varies here; None if none does."""
    for part, value in USUAL:
        values = selection.values(part)
        if len(values) > 1 and value in values:
            return Baseline({part: value})
    return None


def pairs(selection: Selection, baseline: str) -> tuple[list[Pair], tuple[str, ...]]:
    """Every condition beside its baseline, and warnings of those that have none. baseline: as
    `parse_baseline` reads it; empty: the usual one of each sweep."""
    found: list[Pair] = []
    warnings = []
    for sweep in dict.fromkeys(cell.sweep for cell in selection.cells):
        own = selection.only(sweep=sweep)
        chosen = (
            parse_baseline(baseline, list(own.cells[0].parts)) if baseline else usual_baseline(own)
        )
        if chosen is None:
            warnings.append(
                f"{sweep or 'runs of no sweep'}: nothing varies that has a usual baseline"
            )
            continue
        of_sweep, lacking = pairs_of_sweep(own, chosen)
        found += of_sweep
        warnings += [f"no condition like {cell.condition} with {chosen.text}" for cell in lacking]
    return found, unique(warnings)


def pairs_of_sweep(own: Selection, chosen: Baseline) -> tuple[list[Pair], list[Cell]]:
    """The pairs of a sweep, and conditions without a baseline."""
    others = [(cell, chosen.of(cell, own)) for cell in own.cells]
    found = [Pair(cell, other) for cell, other in others if other and other is not cell]
    return found, [cell for cell, other in others if other is None]

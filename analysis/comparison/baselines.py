"""Find what a condition is compared with: the one with another value of a key, and else equal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rlhf_lab_analysis.comparison.cell import Cell
from rlhf_lab_analysis.comparison.names import named_value
from rlhf_lab_analysis.sources.conditions import LETTERS

KEYS = {letter: key for key, letter in LETTERS.items()}
# What a baseline lacks that others may have: sync has no staleness, fresh samples no correction.
FRESH = {"correction": "none"}
LACKS: Mapping[tuple[str, str], Mapping[str, Any]] = {
    ("mode", "sync"): {"max_staleness": 0, **FRESH},
    ("max_staleness", "0"): FRESH,
}
# Of conditions that differ in several keys, the first of these that they have.
USUAL = (
    ("mode", "sync"),
    ("max_staleness", "0"),
    ("updates_per_round", "1"),
    ("passes", "1"),
    ("group_size", "2"),
    ("correction", "none"),
)


def setting_of(text: str) -> tuple[str, str]:
    """Key and value of a baseline: `N=1`, `optim.lr=0.0001`. The value is empty where the text is a
    condition's name."""
    key, _, value = text.partition("=")
    return KEYS.get(key, key), value


def usual_setting(cells: Sequence[Cell], keys: Sequence[str]) -> tuple[str, str] | None:
    """The baseline that is meant where none is named: the first of USUAL that the conditions have,
    else the first one's value of the first key. None where they differ in no key."""
    for key, value in USUAL:
        if key in keys and any(str(named_value(cell, key)) == value for cell in cells):
            return key, value
    return (keys[0], str(named_value(cells[0], keys[0]))) if keys else None


def baseline_of(
    cell: Cell, cells: Iterable[Cell], keys: Sequence[str], setting: tuple[str, str]
) -> Cell | None:
    """The condition that has this value of the key, and the cell's values of the other keys in
    which conditions differ, or what it has in place of them (LACKS). None if there is none."""
    key, value = setting
    others = [one for one in keys if one != key]
    have = [one for one in cells if str(named_value(one, key)) == value]
    for own in ({}, LACKS.get(setting, {})):
        for one in have:
            if all(named_value(one, k) == own.get(k, named_value(cell, k)) for k in others):
                return one
    return None

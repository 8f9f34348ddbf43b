"""Name what a claim compares: levels, changes, and the numbers that its tests differ in."""

from __future__ import annotations

from rlhf_lab_analysis.comparison.cell import Cell
from rlhf_lab_analysis.comparison.claims import Pair
from rlhf_lab_analysis.comparison.families import value_of
from rlhf_lab_analysis.comparison.registry.answers import Unit
from rlhf_lab_analysis.comparison.registry.definitions import Definition
from rlhf_lab_analysis.sources.conditions import LETTERS, NUMBERS

NAMES = {NUMBERS[name]: letter for name, letter in LETTERS.items()} | {"run.updates": "updates"}


def change_text(claim: Definition, pair: Pair) -> str:
    """Such as `N=16 less N=1`, or `sync / async` of a ratio."""
    ends = [", ".join(level_name(cell, key) for key in claim.varied) for cell in reversed(pair)]
    return between(claim).join(ends)


def level_name(cell: Cell, key: str) -> str:
    """A level such as `N=16`, `fresh_share=0.5`, or `async`."""
    value = value_of(cell, key)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    is_named = key in NAMES or is_number
    return f"{key_name(key)}={level_text(cell, key)}" if is_named else level_text(cell, key)


def level_text(cell: Cell, key: str) -> str:
    """A level without the decimal point that a column of whole numbers may have."""
    value = value_of(cell, key)
    return f"{value:g}" if isinstance(value, float) else str(value)


def at_text(claim: Definition, cell: Cell) -> str:
    """The levels that tests of the claim differ in, such as `, S=4` or `, lr=0.0003`. Parts without
    a dot, such as algo, are named by the setting."""
    keys = [key for key in claim.row.get("each", []) if "." in key]
    return "".join(f", {level_name(cell, key)}" for key in keys)


def between(claim: Definition) -> str:
    """The word between what is compared."""
    return " / " if claim.measure.unit is Unit.times else " less "


def key_name(key: str) -> str:
    """The letter of N, T, K and S, else the last part of the key."""
    return NAMES.get(key, key.rpartition(".")[2])

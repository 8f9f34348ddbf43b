"""Find the conditions that a claim compares, and what they differ by, seed by seed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rlhf_lab_analysis.comparison.claims import Pair
from rlhf_lab_analysis.comparison.families import drop_shared, families, value_of
from rlhf_lab_analysis.comparison.registry.answers import Criteria, Unit
from rlhf_lab_analysis.comparison.registry.definitions import Definition
from rlhf_lab_analysis.comparison.registry.levels import before_and_after
from rlhf_lab_analysis.comparison.registry.measures import MEASURES, Effects, Measure
from rlhf_lab_analysis.comparison.selection import Cell, Selection
from rlhf_lab_analysis.sources.conditions import LETTERS, NUMBERS


@dataclass(frozen=True, eq=False)
class Compared:
    """Conditions that give one number a seed. label: of the number. text: the claim with the levels
    that are compared. beside: what is shown beside it and decides nothing, by label. asked: the
    change that was asked for, by which intervals are corrected: to which level it fell back is
    known only afterwards; none where it did not."""

    label: str
    effects: Effects
    cells: tuple[Cell, ...]
    text: str
    beside: tuple[tuple[str, Measure, Effects], ...] = ()
    asked: Pair | None = None


def chosen_by(claim: Definition, selection: Selection) -> Selection:
    """The conditions that the claim is about."""
    wanted = claim.row["runs"]
    kept = [
        cell
        for cell in selection.cells
        if all(is_one_of(value_of(cell, key), values) for key, values in wanted.items())
    ]
    return Selection(tuple(kept), ())


def is_one_of(value: Any, allowed: Any) -> bool:
    return value in (allowed if isinstance(allowed, list) else [allowed])


def alone(claim: Definition, chosen: Selection, criteria: Criteria) -> Iterator[Compared]:
    """Comparisons within one value of every part."""
    if "slope" in claim.row:
        yield from slopes(claim, chosen, criteria)
    elif "change" in claim.row:
        for options in pairs(claim, chosen):
            made = [changed(claim, pair, criteria) for pair in options]
            found = next((one for one in made if one.effects), made[0])
            yield replace(found, asked=options[0])
    else:
        measure = of_one(claim)
        for cell in drop_shared(chosen.cells) if "at" not in claim.row else ends_of(claim, chosen):
            label = claim.measure.label or claim.measure.name
            yield Compared(label, measure(cell, criteria), (cell,), claim.row["text"])


def changed(claim: Definition, pair: Pair, criteria: Criteria) -> Compared:
    """What a change does."""
    before, after = pair
    text = change_text(claim, pair)
    beside = tuple(
        (f"{one.label or one.name}, {text}", one, one.of_pair(after, before, criteria))
        for one in (MEASURES[name] for name in claim.row.get("beside", ()))
    )
    key = claim.varied[0]
    sentence = claim.row["text"].format(
        before=level_text(before, key), after=level_text(after, key)
    )
    label = (claim.measure.label or text) + at_text(claim, after)
    return Compared(
        label, effect(claim, after, before, criteria), (after, before), sentence, beside
    )


def effect(claim: Definition, after: Cell, before: Cell, criteria: Criteria) -> Effects:
    return claim.measure.of_pair(after, before, criteria)


def of_one(claim: Definition) -> Callable[[Cell, Criteria], Effects]:
    measure = claim.measure.of_one
    assert measure is not None, f"{claim.name}: {claim.measure.name} compares two conditions"
    return measure


def ends_of(claim: Definition, chosen: Selection) -> list[Cell]:
    """The conditions with the least or the most of a number, among those that differ in it."""
    ((key, word),) = claim.row["at"].items()
    lines = [list(family.line(key).values()) for family in families(chosen, (key,))]
    return [line[0 if word == "least" else -1] for line in lines]


def pairs(claim: Definition, chosen: Selection) -> list[list[Pair]]:
    """The conditions before and after each change, wherever both are there; several where a change
    leads to the first of several levels of which the measure exists."""
    found = []
    for family in families(chosen, claim.varied):
        cells = {tuple(value_of(c, key) for key in claim.varied): c for c in family.cells}
        values = {key: family.values(key) for key in claim.varied}
        start, groups = before_and_after(claim.row["change"], values)
        for group in groups:
            options = [(cells[start], cells[end]) for end in group if {start, end} <= set(cells)]
            found += [options] if options else []
    return found


def change_text(claim: Definition, pair: Pair) -> str:
    """Such as `N=16 less N=1`, or `sync / async` of a ratio."""
    ends = [", ".join(level_name(cell, key) for key in claim.varied) for cell in reversed(pair)]
    return between(claim).join(ends)


def level_name(cell: Cell, key: str) -> str:
    """A level such as `N=16`, `fresh_share=0.5`, or `async`."""
    value = value_of(cell, key)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    own = f"{key.rpartition('.')[2]}=" if is_number else ""
    return f"{named(key) or own}{level_text(cell, key)}"


def level_text(cell: Cell, key: str) -> str:
    """A level without the decimal point that a column of whole numbers may have."""
    value = value_of(cell, key)
    return f"{value:g}" if isinstance(value, float) else str(value)


def at_text(claim: Definition, cell: Cell) -> str:
    """The numbers that tests of the claim differ in, such as `, S=4`."""
    keys = [key for key in claim.row.get("each", []) if named(key)]
    return "".join(f", {named(key)}{level_text(cell, key)}" for key in keys)


def between(claim: Definition) -> str:
    """The word between what is compared."""
    return " / " if claim.measure.unit is Unit.times else " less "


def named(key: str) -> str:
    """The letter of N, T, K and S; nothing for settings whose values are words."""
    letters = {NUMBERS[name]: letter for name, letter in LETTERS.items()}
    numbers = letters | {"run.updates": "updates"}
    return f"{numbers[key]}=" if key in numbers else ""


def slopes(claim: Definition, chosen: Selection, criteria: Criteria) -> Iterator[Compared]:
    """What each doubling of a number changes, by least squares, where all of its levels are."""
    ((key, levels),) = claim.row["slope"].items()
    measure = of_one(claim)
    for family in families(chosen, (key,)):
        line = family.line(key)
        if not set(levels) <= set(line):
            continue
        numbers = [measure(line[level], criteria) for level in levels]
        seeds = set.intersection(*(set(one) for one in numbers))
        x = np.array([math.log2(level) for level in levels])
        x -= x.mean()
        effects = {
            seed: float(x @ [one[seed] for one in numbers] / (x @ x)) for seed in sorted(seeds)
        }
        label = f"per doubling of {named(key).rstrip('=')}"
        yield Compared(label, effects, tuple(line[level] for level in levels), claim.row["text"])

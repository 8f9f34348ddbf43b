"""Find the conditions that a claim compares, and what they differ by, seed by seed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlhf_lab_analysis.comparison.families import drop_shared, families, rest_of, value_of
from rlhf_lab_analysis.comparison.questions.answers import Criteria, Unit
from rlhf_lab_analysis.comparison.registry.definitions import Definition
from rlhf_lab_analysis.comparison.registry.measures import Effects
from rlhf_lab_analysis.comparison.selection import Cell, Selection
from rlhf_lab_analysis.sources.conditions import LETTERS, NUMBERS

# Rates are chosen for each algorithm by itself: algorithms are compared with their own.
OF_ALGORITHM = ("optim.lr",)


@dataclass(frozen=True, eq=False)
class Compared:
    """Conditions that give one number a seed. label: of the number."""

    label: str
    effects: Effects
    cells: tuple[Cell, ...]


@dataclass(frozen=True, eq=False)
class Setting:
    """A setting in which a claim is tested: one comparison, or several that must all hold."""

    name: str
    parts: tuple[Compared, ...]

    @property
    def cells(self) -> tuple[Cell, ...]:
        return tuple(dict.fromkeys(cell for part in self.parts for cell in part.cells))


def settings_of_claim(claim: Definition, selection: Selection, criteria: Criteria) -> list[Setting]:
    """Every setting of these conditions in which the claim can be tested."""
    wanted = claim.row["runs"]
    kept = [
        cell
        for cell in selection.cells
        if all(is_one_of(value_of(cell, key), values) for key, values in wanted.items())
    ]
    chosen = Selection(tuple(kept), ())
    if "against" in claim.row or "more_than" in claim.row:
        found = list(between_parts(claim, chosen, criteria))
    else:
        found = [
            Setting(setting_of(claim, one.cells), (one,)) for one in alone(claim, chosen, criteria)
        ]
    return [test for test in found if all(part.effects for part in test.parts)]


def is_one_of(value: Any, allowed: Any) -> bool:
    return value in (allowed if isinstance(allowed, list) else [allowed])


def setting_of(claim: Definition, cells: Sequence[Cell]) -> str:
    """The parts that tests of the claim differ in."""
    each = claim.row.get("each", [])
    return ", ".join(str(value_of(cells[0], part)) for part in each)


def alone(claim: Definition, chosen: Selection, criteria: Criteria) -> Iterator[Compared]:
    """Comparisons within one value of every part."""
    if "slope" in claim.row:
        yield from slopes(claim, chosen, criteria)
    elif "change" in claim.row:
        for before, after in pairs(claim, chosen):
            yield Compared(
                claim.measure.label or change_text(claim),
                effect(claim, after, before, criteria),
                (after, before),
            )
    else:
        measure = claim.measure.of_one
        assert measure is not None, f"{claim.name}: {claim.measure.name} compares two conditions"
        for cell in drop_shared(chosen.cells):
            yield Compared(
                claim.measure.label or claim.measure.name, measure(cell, criteria), (cell,)
            )


def effect(claim: Definition, after: Cell, before: Cell, criteria: Criteria) -> Effects:
    return claim.measure.of_pair(after, before, criteria)


def pairs(claim: Definition, chosen: Selection) -> list[tuple[Cell, Cell]]:
    """The conditions before and after the change, wherever both are there."""
    change = claim.row["change"]
    ends = [tuple(values[place] for values in change.values()) for place in (0, 1)]
    found = []
    for family in families(chosen, claim.varied):
        cells = {tuple(value_of(c, key) for key in claim.varied): c for c in family.cells}
        if all(end in cells for end in ends):
            found.append((cells[ends[0]], cells[ends[1]]))
    return found


def change_text(claim: Definition) -> str:
    """Such as `N=16 less N=1`, or `sync / async` of a ratio."""
    ends = [
        ", ".join(f"{named(key)}{values[place]}" for key, values in claim.row["change"].items())
        for place in (1, 0)
    ]
    return between(claim).join(ends)


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
    measure = claim.measure.of_one
    assert measure is not None, f"{claim.name}: {claim.measure.name} compares two conditions"
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
        yield Compared(label, effects, tuple(line[level] for level in levels))


def between_parts(claim: Definition, chosen: Selection, criteria: Criteria) -> Iterator[Setting]:
    """One value of a part beside others, in what it has (`against`) or in what a change does to it
    (`more_than`)."""
    assert claim.part is not None
    name, row = claim.part
    free = (*claim.varied, name, *(OF_ALGORITHM if name == "algo" else ()))
    groups: dict[Any, dict[Any, tuple[Cell, ...]]] = {}
    if "change" in claim.row:
        units: list[tuple[Cell, ...]] = [(after, before) for before, after in pairs(claim, chosen)]
    else:
        units = [(cell,) for cell in drop_shared(chosen.cells)]
    for unit in units:
        group = groups.setdefault(rest_of(unit[0], free), {})
        group.setdefault(value_of(unit[0], name), unit)
    for group in groups.values():
        if {row["after"], *row["before"]} <= set(group):
            parts = tuple(
                beside(claim, group[row["after"]], group[other], other, criteria)
                for other in row["before"]
            )
            yield Setting(setting_of(claim, parts[0].cells), parts)


def beside(
    claim: Definition,
    first: tuple[Cell, ...],
    second: tuple[Cell, ...],
    other: Any,
    criteria: Criteria,
) -> Compared:
    """What a value of the part has more than another one."""
    assert claim.part is not None
    label = f"{claim.part[1]['after']}{between(claim)}{other}"
    if len(first) == 1:
        return Compared(label, effect(claim, first[0], second[0], criteria), (*first, *second))
    own, theirs = (effect(claim, one[0], one[1], criteria) for one in (first, second))
    effects = {seed: value - theirs[seed] for seed, value in own.items() if seed in theirs}
    return Compared(f"{label}, of {change_text(claim)}", effects, (*first, *second))

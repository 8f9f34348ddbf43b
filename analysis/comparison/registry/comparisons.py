"""Find the conditions that a claim compares, and what they differ by, seed by seed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from rlhf_lab_analysis.comparison.cell import Cell, with_common_seeds
from rlhf_lab_analysis.comparison.claims import Pair
from rlhf_lab_analysis.comparison.families import Family, drop_shared, families, value_of
from rlhf_lab_analysis.comparison.registry.answers import Criteria
from rlhf_lab_analysis.comparison.registry.definitions import Definition
from rlhf_lab_analysis.comparison.registry.labels import (
    at_text,
    change_text,
    key_name,
    level_text,
)
from rlhf_lab_analysis.comparison.registry.levels import before_and_after
from rlhf_lab_analysis.comparison.registry.measures import MEASURES, Effects, Fit, Measure
from rlhf_lab_analysis.comparison.selection import Selection


@dataclass(frozen=True, eq=False)
class Compared:
    """Conditions that give one number a seed. label: of the number. text: the claim with the levels
    that are compared. beside: what is shown beside it and decides nothing, by label. asked: the
    change that was asked for, by which intervals are corrected: to which level it fell back is
    known only afterwards; none where it did not. fitted: the number with its interval, where it is
    no mean of the effects."""

    label: str
    effects: Effects
    cells: tuple[Cell, ...]
    text: str
    beside: tuple[tuple[str, Measure, Effects], ...] = ()
    asked: Pair | None = None
    fitted: Fit | None = None


def chosen_by(claim: Definition, selection: Selection) -> Selection:
    """The conditions that the claim is about: of any sweep, unless it names one."""
    wanted = claim.row["runs"]
    kept = [
        cell
        for cell in selection.cells
        if all(is_one_of(of_cell(cell, key), values) for key, values in wanted.items())
    ]
    return Selection(tuple(kept), ())


def of_cell(cell: Cell, key: str) -> Any:
    """A setting of a condition, or its sweep."""
    return cell.sweep if key == "sweep" else value_of(cell, key)


def is_one_of(value: Any, allowed: Any) -> bool:
    return value in (allowed if isinstance(allowed, list) else [allowed])


def comparable(claim: Definition, chosen: Selection) -> list[Family]:
    """Conditions that differ in what the claim varies alone. Measured seconds are compared within a
    sweep: another one may have run on another machine, or beside other work."""
    if not claim.measure.is_timed:
        return families(chosen, claim.varied)
    sweeps = dict.fromkeys(cell.sweep for cell in chosen.cells)
    own = (Selection(tuple(c for c in chosen.cells if c.sweep == sweep), ()) for sweep in sweeps)
    return [family for one in own for family in families(one, claim.varied)]


def alone(claim: Definition, chosen: Selection, criteria: Criteria) -> Iterator[Compared]:
    """Comparisons within one value of every part."""
    if claim.measure.of_many:
        yield from of_families(claim, chosen, criteria)
    elif claim.varied:
        for options in pairs(claim, chosen):
            made = [changed(claim, pair, criteria) for pair in options]
            found = next((one for one in made if one.effects), made[0])
            yield replace(found, asked=options[0])
    elif measure := claim.measure.of_one:
        for cell in drop_shared(chosen.cells):
            effects = measure(cell, criteria)
            yield Compared(claim.measure.title, effects, (cell,), claim.row["text"])


def changed(claim: Definition, pair: Pair, criteria: Criteria) -> Compared:
    """What a change does."""
    before, after = with_common_seeds(*pair)
    text, at = change_text(claim, pair), at_text(claim, after)
    beside = tuple(
        (f"{one.title}, {text}{at}", one, effect(one, after, before, criteria))
        for one in (MEASURES[name] for name in claim.row.get("beside", ()))
    )
    key = claim.varied[0]
    sentence = claim.row["text"].format(
        before=level_text(before, key), after=level_text(after, key)
    )
    label = (claim.measure.label or text) + at
    effects = effect(claim.measure, after, before, criteria)
    return Compared(label, effects, (after, before), sentence, beside)


def effect(measure: Measure, after: Cell, before: Cell, criteria: Criteria) -> Effects:
    assert measure.of_pair is not None, f"{measure.name} is of many conditions"
    return measure.of_pair(after, before, criteria)


def pairs(claim: Definition, chosen: Selection) -> list[list[Pair]]:
    """The conditions before and after each change, wherever both are there; several where a change
    leads to the first of several levels of which the measure exists."""
    found = []
    for family in comparable(claim, chosen):
        cells = {tuple(value_of(c, key) for key in claim.varied): c for c in family.cells}
        values = {key: family.values(key) for key in claim.varied}
        start, groups = before_and_after(claim.row["change"], values)
        for group in groups:
            options = [(cells[start], cells[end]) for end in group if {start, end} <= set(cells)]
            found += [options] if options else []
    return found


def of_families(claim: Definition, chosen: Selection, criteria: Criteria) -> Iterator[Compared]:
    """The number of many conditions, where all levels of each setting are."""
    measure, change = claim.measure, claim.row["change"]
    assert measure.of_many is not None, f"{measure.name} is of two conditions"
    label = measure.label.format(*map(key_name, change))
    for family in comparable(claim, chosen):
        if any(not {*levels} <= {*family.values(key)} for key, levels in change.items()):
            continue
        cells = {tuple(value_of(c, key) for key in change): c for c in family.cells}
        kept = sorted(levels for levels in cells if all(map(is_one_of, levels, change.values())))
        shared = with_common_seeds(*(cells[levels] for levels in kept))
        effects, fitted = measure.of_many(dict(zip(kept, shared, strict=True)), criteria)
        yield Compared(label, effects, shared, claim.row["text"], fitted=fitted)

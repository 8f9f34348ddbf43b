"""Find the conditions that a claim compares, and what they differ by, seed by seed."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rlhf_lab_analysis.comparison.cell import Cell, with_common_seeds
from rlhf_lab_analysis.comparison.claims import Pair
from rlhf_lab_analysis.comparison.families import drop_shared, families, value_of
from rlhf_lab_analysis.comparison.registry.answers import Criteria
from rlhf_lab_analysis.comparison.registry.definitions import Definition
from rlhf_lab_analysis.comparison.registry.labels import (
    at_text,
    change_text,
    level_text,
    named,
)
from rlhf_lab_analysis.comparison.registry.levels import before_and_after
from rlhf_lab_analysis.comparison.registry.measures import MEASURES, Effects, Measure
from rlhf_lab_analysis.comparison.selection import Selection
from rlhf_lab_analysis.comparison.stable_rates import (
    seeds_slopes,
    slope_estimate,
    times_of,
    trials_of,
)
from rlhf_lab_analysis.statistics.results import Estimate, Options


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
    fitted: Callable[[Options], Estimate] | None = None


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


def alone(claim: Definition, chosen: Selection, criteria: Criteria) -> Iterator[Compared]:
    """Comparisons within one value of every part."""
    if "slope" in claim.row:
        yield from slopes(claim, chosen, criteria)
    elif "boundary" in claim.row:
        yield from boundaries(claim, chosen)
    elif "change" in claim.row:
        for options in pairs(claim, chosen):
            made = [changed(claim, pair, criteria) for pair in options]
            found = next((one for one in made if one.effects), made[0])
            yield replace(found, asked=options[0])
    else:
        measure = of_one(claim)
        for cell in drop_shared(chosen.cells) if "at" not in claim.row else ends_of(claim, chosen):
            label = claim.measure.title
            yield Compared(label, measure(cell, criteria), (cell,), claim.row["text"])


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
    return Compared(
        label, effect(claim.measure, after, before, criteria), (after, before), sentence, beside
    )


def effect(measure: Measure, after: Cell, before: Cell, criteria: Criteria) -> Effects:
    assert measure.of_pair is not None, f"{measure.name} is of many conditions"
    return measure.of_pair(after, before, criteria)


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


def slopes(claim: Definition, chosen: Selection, criteria: Criteria) -> Iterator[Compared]:
    """What each doubling of a number changes, by least squares, where all of its levels are."""
    ((key, levels),) = claim.row["slope"].items()
    measure = of_one(claim)
    for family in families(chosen, (key,)):
        line = family.line(key)
        if not set(levels) <= set(line):
            continue
        cells = with_common_seeds(*(line[level] for level in levels))
        numbers = [measure(cell, criteria) for cell in cells]
        seeds = set.intersection(*(set(one) for one in numbers))
        x = np.array([math.log2(level) for level in levels])
        x -= x.mean()
        effects = {
            seed: float(x @ [one[seed] for one in numbers] / (x @ x)) for seed in sorted(seeds)
        }
        label = f"per doubling of {named(key).rstrip('=')}"
        yield Compared(label, effects, cells, claim.row["text"])


def boundaries(claim: Definition, chosen: Selection) -> Iterator[Compared]:
    """The exponent of staleness in the largest stable rate, over all conditions of both."""
    row, than = claim.row["boundary"], claim.row.get("than", 0.0)
    label = f"slope of log {row['rate'].rpartition('.')[2]} on log({named(row['over'])[:-1]} + 1)"
    label += f", less {than:g}" if than else ""
    for family in families(chosen, claim.varied):
        cells = {
            (float(value_of(cell, row["over"])), float(value_of(cell, row["rate"]))): cell
            for cell in family.cells
        }
        trials = trials_of({place: times_of(cell) for place, cell in cells.items()})
        effects = {seed: slope - than for seed, slope in seeds_slopes(trials).items()}
        fitted = functools.partial(slope_estimate, trials, than)
        ordered = tuple(cells[place] for place in sorted(cells))
        yield Compared(label, effects, ordered, claim.row["text"], fitted=fitted)

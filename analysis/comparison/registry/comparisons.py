"""Find the conditions that a claim compares, and what they differ by, seed by seed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, TypeAlias

from rlhf_lab_analysis.comparison.cell import Cell, with_common_seeds
from rlhf_lab_analysis.comparison.claims import Pair
from rlhf_lab_analysis.comparison.families import (
    Family,
    Level,
    drop_shared,
    families,
    keys_of,
    levels_of,
    order,
    parameters,
    rest_of,
    value_of,
)
from rlhf_lab_analysis.comparison.registry.answers import Criteria, Unit
from rlhf_lab_analysis.comparison.registry.definitions import Definition
from rlhf_lab_analysis.comparison.registry.measures import Effects, Fit, Measure
from rlhf_lab_analysis.comparison.selection import Selection
from rlhf_lab_analysis.sources.conditions import LETTERS, NUMBERS

NAMES = {NUMBERS[name]: letter for name, letter in LETTERS.items()} | {"run.updates": "updates"}
# The word of a setting that comparisons of a claim may have at any level, and name it.
EACH = "each"
# Rates are chosen for each algorithm by itself: algorithms are compared with their own.
OF_ALGORITHM = ("optim.lr",)
# One seed has no interval.
LEAST_SEEDS = 2
# Conditions by the value of a part: one, or that after and that before a change.
Group: TypeAlias = Mapping[Any, tuple[Cell, ...]]


@dataclass(frozen=True, eq=False)
class Compared:
    """Conditions that give one number a seed. label: of the number. text: the claim with the levels
    that are compared. beside: what is shown beside it and decides nothing, by label. requested: the
    change as the claim has it, by which intervals are corrected: to which level it fell back is
    known only afterwards; none where it did not. fitted: the number with its interval, where it is
    no mean of the effects."""

    label: str
    effects: Effects
    cells: tuple[Cell, ...]
    text: str
    beside: tuple[tuple[str, Measure, Effects], ...] = ()
    requested: Pair | None = None
    fitted: Fit | None = None


@dataclass(frozen=True, eq=False)
class Setting:
    """A setting in which a claim is tested: one comparison, or several that must all hold."""

    parts: tuple[Compared, ...]

    @property
    def cells(self) -> tuple[Cell, ...]:
        return tuple(dict.fromkeys(cell for part in self.parts for cell in part.cells))

    @property
    def seeds(self) -> dict[Cell, list[int]]:
        """Of each condition, the seeds that have a part in a comparison: pairs lack those that one
        side alone has. What is fitted is fitted to all."""
        found = {}
        for cell in self.cells:
            parts = [part for part in self.parts if cell in part.cells]
            is_fitted = any(part.fitted for part in parts)
            used = {seed for part in parts for seed in part.effects}
            found[cell] = [seed for seed in cell.seeds if is_fitted or seed in used]
        return found

    @property
    def requested(self) -> Pair:
        """The comparison that decides together with which others it is one claim."""
        return self.parts[0].requested or (self.cells[0], self.cells[-1])


def settings_of_claim(claim: Definition, selection: Selection, criteria: Criteria) -> list[Setting]:
    """Every setting of these conditions in which the claim can be tested."""
    chosen = chosen_by(claim, selection)
    if claim.part:
        found = [
            Setting(tuple(beside(claim, group, after, other, criteria) for other in others))
            for group, others, after in groups_of(claim, chosen)
        ]
    else:
        found = [Setting((one,)) for one in alone(claim, chosen, criteria)]
    return [test for test in found if all(len(part.effects) >= LEAST_SEEDS for part in test.parts)]


def chosen_by(claim: Definition, selection: Selection) -> Selection:
    """The conditions that the claim is about: those of its sweeps that have its settings, or where
    there are none and it names `any`, those of any sweep. A question of any runs is about all of
    them."""
    wanted = claim.row.get("runs", {}).items()
    kept = [
        cell
        for cell in selection.cells
        if all(values == EACH or is_one_of(value_of(cell, key), values) for key, values in wanted)
    ]
    sweeps = {Path(sweep).stem for sweep in claim.sweeps}
    own = [cell for cell in kept if cell.sweep in sweeps]
    takes_any = claim.is_general or (claim.takes_any and not own)
    return Selection(tuple(kept if takes_any else own), ())


def is_one_of(value: Any, allowed: Any) -> bool:
    return value in (allowed if isinstance(allowed, list) else [allowed])


def comparable(claim: Definition, chosen: Selection) -> list[Family]:
    """Conditions that differ in what the claim varies alone. Measured seconds are compared within a
    sweep: another one may have run on another machine, or beside other work."""
    if not claim.measure.is_timed:
        return families(chosen.cells, claim.varied)
    sweeps = dict.fromkeys(cell.sweep for cell in chosen.cells)
    own = (chosen.only(sweep=sweep).cells for sweep in sweeps)
    return [family for cells in own for family in families(cells, claim.varied)]


def pairs(claim: Definition, chosen: Selection) -> list[list[Pair]]:
    """The conditions before and after each change, wherever both are there; several where a change
    leads to the first of several levels of which the measure exists."""
    found = []
    for family in comparable(claim, chosen):
        values = levels_of(family, claim.varied)
        start, groups = before_and_after(claim.row.get("change", {}), values)
        for group in groups:
            options = [(family[start], family[end]) for end in group if {start, end} <= {*family}]
            found += [options] if options else []
    return found


def before_and_after(
    change: Mapping[str, Sequence[Any]], values: Mapping[str, Sequence[Any]]
) -> tuple[Level, list[list[Level]]]:
    """The levels before a change, and those after it. values: of each key, in order.

    Every list of levels after it is one comparison, with its levels in the order of preference.
    """
    ends = {key: {"least": own[0], "most": own[-1]} for key, own in values.items()}
    before = tuple(ends[key].get(row[0], row[0]) for key, row in change.items())
    groups = [
        after(row[1], start, values[key])
        for (key, row), start in zip(change.items(), before, strict=True)
    ]
    return before, [list(product(*group)) for group in product(*groups)]


def after(word: Any, start: Any, values: Sequence[Any]) -> list[list[Any]]:
    """The comparisons that a word stands for, each with its levels in the order of preference.

    `most` falls back to smaller levels, as a measure may not exist of the most. A list stands for
    those of its levels that are there, any other word for itself.
    """
    if isinstance(word, list):
        return [[value] for value in values if value in word]
    if word == "most":
        return [list(reversed(values[1:]))]
    several = {
        "next": values[1:2],
        "middle": values[1:-1],
        "other": [value for value in values if value != start],
    }
    return [[value] for value in several.get(word, [word])]


def alone(claim: Definition, chosen: Selection, criteria: Criteria) -> Iterator[Compared]:
    """Comparisons within one value of every part."""
    if claim.measure.of_many:
        yield from of_families(claim, chosen, criteria)
    elif claim.varied:
        for options in pairs(claim, chosen):
            made = [changed(claim, pair, criteria) for pair in options]
            found = next((one for one in made if one.effects), made[0])
            yield replace(found, requested=options[0])
    elif measure := claim.measure.of_one:
        for cell in drop_shared(chosen.cells):
            effects = measure(cell, criteria)
            yield Compared(claim.measure.title, effects, (cell,), claim.row["text"])


def changed(claim: Definition, pair: Pair, criteria: Criteria) -> Compared:
    """What a change does."""
    before, after = with_common_seeds(*pair)
    text, at = change_text(claim, pair), at_text(claim, after)
    beside = tuple(
        (f"{one.title}, {text}{at}", one, one.effects(after, before, criteria))
        for one in claim.measures[1:]
    )
    key = claim.varied[0]
    sentence = claim.row["text"].format(
        before=level_text(before, key), after=level_text(after, key)
    )
    label = (claim.measure.label or text) + at
    effects = claim.measure.effects(after, before, criteria)
    return Compared(label, effects, (after, before), sentence, beside)


def of_families(claim: Definition, chosen: Selection, criteria: Criteria) -> Iterator[Compared]:
    """The number of many conditions, where all levels of each setting are."""
    measure, change = claim.measure, claim.row.get("change", {})
    assert measure.of_many is not None, f"{measure.name} is of two conditions"
    label = measure.label.format(*map(key_name, change))
    for family in comparable(claim, chosen):
        there = levels_of(family, claim.varied)
        if any(not {*levels} <= {*there[key]} for key, levels in change.items()):
            continue
        kept = sorted(level for level in family if all(map(is_one_of, level, change.values())))
        shared = with_common_seeds(*(family[level] for level in kept))
        effects, fitted = measure.of_many(dict(zip(kept, shared, strict=True)), criteria)
        yield Compared(label, effects, shared, claim.row["text"], fitted=fitted)


def groups_of(claim: Definition, chosen: Selection) -> Iterator[tuple[Group, list[Any], Any]]:
    """Conditions by the value of a part, the values that one is compared to, and that one."""
    assert claim.part is not None
    name, (others, value) = claim.part
    free = (*claim.varied, name, *(OF_ALGORITHM if name == "algo" else ()))
    units: list[tuple[Cell, ...]] = [(cell,) for cell in drop_shared(chosen.cells)]
    if claim.varied:
        units = [(after, before) for ((before, after), *_) in pairs(claim, chosen)]
    groups: dict[Any, dict[Any, tuple[Cell, ...]]] = {}
    for unit in units:
        group = groups.setdefault(rest_of(unit[0], free), {})
        group.setdefault(value_of(unit[0], name), unit)
    for group in groups.values():
        # A reward may be of any kind: only those named by a number of parameters have a size.
        sizes = [one for one in sorted(group, key=order) if name != "reward" or parameters(one)]
        if value == "most":
            yield from [(group, sizes[:1], sizes[-1])] if len(sizes) > 1 else []
            continue
        rest = [one for one in group if one != value]
        compared = rest if others == "others" else others if isinstance(others, list) else [others]
        if compared and {value, *compared} <= set(group):
            yield group, compared, value


def beside(claim: Definition, group: Group, value: Any, other: Any, criteria: Criteria) -> Compared:
    """What a value of the part has more than another one, or gains more by a change."""
    cells = with_common_seeds(*group[value], *group[other])
    first, second = cells[: len(group[value])], cells[len(group[value]) :]
    label, text = f"{value}{between(claim)}{other}", claim.row["text"]
    if len(first) == 1:
        return Compared(label, claim.measure.effects(first[0], second[0], criteria), cells, text)
    own, theirs = (claim.measure.effects(one[0], one[1], criteria) for one in (first, second))
    effects = {seed: number - theirs[seed] for seed, number in own.items() if seed in theirs}
    label = f"{label}, of {change_text(claim, (first[1], first[0]))}"
    return Compared(label, effects, cells, text)


def compared(claim: Definition, selection: Selection) -> list[tuple[Cell, ...]]:
    """The conditions that a claim about a change would compare, whatever their seeds, the baseline
    first."""
    if not claim.varied or claim.measure.of_many:
        return []
    chosen = chosen_by(claim, selection)
    if claim.part is None:
        return [options[0] for options in pairs(claim, chosen)]
    return [
        tuple(cell for name in (*others, value) for cell in reversed(group[name]))
        for group, others, value in groups_of(claim, chosen)
    ]


def change_text(claim: Definition, pair: Pair) -> str:
    """Such as `N=16 less N=1`, or `sync / async` of a ratio."""
    ends = [", ".join(level_name(cell, key) for key in claim.varied) for cell in reversed(pair)]
    return between(claim).join(ends)


def at_text(claim: Definition, cell: Cell) -> str:
    """The levels that tests of the claim differ in, such as `, S=4` or `, lr=0.0003`. Parts without
    a dot, such as algo, are named by the setting."""
    changed = tuple(key for name in claim.varied for key in keys_of(name))
    keys = [
        key
        for key, values in claim.row.get("runs", {}).items()
        if "." in key and (values == EACH or isinstance(values, list))
    ]
    return "".join(f", {level_name(cell, key)}" for key in keys if not key.startswith(changed))


def between(claim: Definition) -> str:
    """The word between what is compared."""
    return " / " if claim.measure.unit is Unit.times else " less "


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


def key_name(key: str) -> str:
    """The letter of N, T, K and S, else the last part of the key."""
    return NAMES.get(key, key.rpartition(".")[2])

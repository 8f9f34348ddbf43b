"""Find the settings in which a claim can be tested: one comparison each, or several."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from rlhf_lab_analysis.comparison.cell import Cell, with_common_seeds
from rlhf_lab_analysis.comparison.claims import Pair
from rlhf_lab_analysis.comparison.families import drop_shared, parameters, rest_of, value_of
from rlhf_lab_analysis.comparison.registry.answers import Criteria
from rlhf_lab_analysis.comparison.registry.comparisons import (
    Compared,
    alone,
    chosen_by,
    effect,
    pairs,
)
from rlhf_lab_analysis.comparison.registry.definitions import Definition, PartRow
from rlhf_lab_analysis.comparison.registry.labels import between, change_text
from rlhf_lab_analysis.comparison.selection import Selection

# Rates are chosen for each algorithm by itself: algorithms are compared with their own.
OF_ALGORITHM = ("optim.lr",)

Group: TypeAlias = Mapping[Any, tuple[Cell, ...]]

LEAST_SEEDS = 2


@dataclass(frozen=True, eq=False)
class Setting:
    """A setting in which a claim is tested: one comparison, or several that must all hold."""

    name: str
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
    def asked(self) -> Pair:
        """The comparison that decides together with which others it is one claim."""
        return self.parts[0].asked or (self.cells[0], self.cells[-1])


def settings_of_claim(claim: Definition, selection: Selection, criteria: Criteria) -> list[Setting]:
    """Every setting of these conditions in which the claim can be tested; one seed has no
    interval."""
    chosen = chosen_by(claim, selection)
    if claim.part:
        found = list(between_parts(claim, chosen, criteria))
    else:
        found = [
            Setting(setting_of(claim, one.cells), (one,)) for one in alone(claim, chosen, criteria)
        ]
    return [test for test in found if all(len(part.effects) >= LEAST_SEEDS for part in test.parts)]


def setting_of(claim: Definition, cells: Sequence[Cell]) -> str:
    """The parts that tests of the claim differ in."""
    each = claim.row.get("each", [])
    return ", ".join(str(value_of(cells[0], part)) for part in each)


def between_parts(claim: Definition, chosen: Selection, criteria: Criteria) -> Iterator[Setting]:
    """One value of a part beside others, in what it has or in what a change does to it."""
    for group, after, others in groups_of(claim, chosen):
        parts = tuple(beside(claim, group, after, other, criteria) for other in others)
        yield Setting(setting_of(claim, parts[0].cells), parts)


def compared(claim: Definition, selection: Selection) -> list[tuple[Cell, ...]]:
    """The conditions that a claim about a change would compare, whatever their seeds, the baseline
    first."""
    if not claim.varied or claim.measure.of_many:
        return []
    chosen = chosen_by(claim, selection)
    if claim.part is None:
        return [options[0] for options in pairs(claim, chosen)]
    return [
        tuple(cell for name in (*others, after) for cell in reversed(group[name]))
        for group, after, others in groups_of(claim, chosen)
    ]


def groups_of(claim: Definition, chosen: Selection) -> Iterator[tuple[Group, Any, list[Any]]]:
    """Conditions, or those after and before a change, by the value of a part; the value that is
    compared, and those that it is compared to."""
    assert claim.part is not None
    name, row = claim.part
    free = (*claim.varied, name, *(OF_ALGORITHM if name == "algo" else ()))
    groups: dict[Any, dict[Any, tuple[Cell, ...]]] = {}
    units: list[tuple[Cell, ...]] = [(cell,) for cell in drop_shared(chosen.cells)]
    if claim.varied:
        units = [(after, before) for ((before, after), *_) in pairs(claim, chosen)]
    # Another sweep may have an algorithm at another rate: that of the claim's own sweep is meant.
    for unit in sorted(units, key=lambda one: one[0].sweep != claim.row.get("sweep")):
        group = groups.setdefault(rest_of(unit[0], free), {})
        group.setdefault(value_of(unit[0], name), unit)
    for group in groups.values():
        if ends := ends_between(name, row, group):
            yield group, *ends


def ends_between(name: str, row: PartRow, group: Group) -> tuple[Any, list[Any]] | None:
    """The value of a part and those beside it, among these; None where one is not there."""
    after, others = row["after"], row["before"]
    if after == "largest":
        sizes = by_size(name, group)
        return (sizes[-1], sizes[:1]) if len(sizes) > 1 else None
    if others == ["others"]:
        others = [value for value in group if value != after]
    return (after, others) if others and {after, *others} <= set(group) else None


def beside(
    claim: Definition,
    group: Group,
    after: Any,
    other: Any,
    criteria: Criteria,
) -> Compared:
    """What a value of the part has more than another one."""
    cells = with_common_seeds(*group[after], *group[other])
    first, second = cells[: len(group[after])], cells[len(group[after]) :]
    label, text = f"{after}{between(claim)}{other}", claim.row["text"]
    if len(first) == 1:
        return Compared(label, effect(claim.measure, first[0], second[0], criteria), cells, text)
    own, theirs = (effect(claim.measure, one[0], one[1], criteria) for one in (first, second))
    effects = {seed: value - theirs[seed] for seed, value in own.items() if seed in theirs}
    label = f"{label}, of {change_text(claim, (first[1], first[0]))}"
    return Compared(label, effects, cells, text)


def by_size(part: str, units: Group) -> list[Any]:
    """The values of a part, the smallest first: by the parameters in their names, then by the mean
    FLOPs of their runs, as equal updates of a larger model are more."""

    def size(name: Any) -> tuple[float, float]:
        ends = units[name][-1].at_end("x/flops").values()
        return parameters(name), sum(ends) / len(ends)

    return sorted(sized(part, list(units)), key=size)


def sized(part: str, names: Sequence[Any]) -> list[Any]:
    """The options that are sizes of one thing. A reward may be of any kind: only those whose names
    end in a number of parameters, such as paper_proxy_1b, are reward models of some size."""
    return [name for name in names if part != "reward" or parameters(name)]

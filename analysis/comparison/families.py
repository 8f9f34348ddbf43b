"""Group conditions that may be compared: those equal in every setting except the varied ones."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlhf_lab_analysis.comparison.cell import Cell
from rlhf_lab_analysis.comparison.selection import Selection

# A part, and the keys of the config that change with it; one with a dot at its end is a group's.
KEYS: Mapping[str, tuple[str, ...]] = {
    "updates_per_round": ("run.updates_per_round",),
    "passes": ("run.passes",),
    "group_size": ("run.group_size",),
    "updates": ("run.updates",),
    "schedule_per": ("optim.schedule_per",),
    "mode": ("mode.",),
    "max_staleness": ("mode.",),
    "correction": ("correction.",),
    "model": ("model.",),
    "proxy": ("proxy.",),
    "reward": ("reward.",),
    "algo": ("algo.",),
}
# In names of models and reward models, such as paper_proxy_2.8b.
PARAMETERS = re.compile(r"(?<![a-z0-9.])(?P<number>\d+(\.\d+)?)(?P<unit>[mb])\b")
# The others, in millions.
NANO = {"nano_s": 0.3, "nano_m": 1, "nano_l": 4}
Settings = tuple[tuple[str, str], ...]


def value_of(cell: Cell, name: str) -> Any:
    """The value of a part of the condition, from the tables' column, else from the config."""
    return cell.parts[name] if name in cell.parts else cell.config(keys_of(name)[0])


def keys_of(name: str) -> tuple[str, ...]:
    """The keys of the config that a part stands for; any other name is a key itself."""
    return KEYS.get(name, (name,))


def rest_of(cell: Cell, varied: Iterable[str]) -> Settings:
    """The settings that must be the same between conditions that differ in these parts."""
    keys = {key for name in varied for key in keys_of(name)}
    groups = tuple(key for key in keys if key.endswith("."))
    return tuple(
        item
        for item in cell.setting_items
        if item[0] not in keys and f"{item[0]}." not in groups and not item[0].startswith(groups)
    )


def differences(one: Cell, other: Cell) -> set[str]:
    """The settings in which two conditions differ."""
    return {key for key, _ in one.settings.items() ^ other.settings.items()}


def versions(cell: Cell) -> int:
    """The number of evaluated versions that every run of the condition has."""
    return min(len(rows) for rows in cell.rows.values())


def drop_shared(cells: Sequence[Cell]) -> list[Cell]:
    """Each condition once if sweeps share it: of conditions with the same settings and environment,
    the one with the most evaluated versions, else the first."""
    found: dict[tuple[str, Settings], Cell] = {}
    for cell in cells:
        key = (cell.env, cell.setting_items)
        if key not in found or versions(cell) > versions(found[key]):
            found[key] = cell
    return list(found.values())


@dataclass(frozen=True, eq=False)
class Family:
    """Conditions that are equal in every setting except the varied ones."""

    cells: tuple[Cell, ...]

    def values(self, part: str) -> list[Any]:
        """The values of a part among the conditions, in order."""
        return sorted({value_of(cell, part) for cell in self.cells}, key=order)


def order(found: Any) -> tuple[bool, float, Any]:
    """A key that sorts values of a part: none, numbers, then texts; of these, models by size."""
    if found is None:
        return (False, -math.inf, "")
    if isinstance(found, int | float):
        return (False, 0, found)
    return (isinstance(found, str), parameters(found), str(found))


def parameters(name: Any) -> float:
    """The millions of parameters of a model by its name: 410 of pythia_410m; 0 if it has none."""
    if found := PARAMETERS.search(str(name)):
        return float(found["number"]) * (1000 if found["unit"] == "b" else 1)
    return NANO.get(name, 0)


def families(selection: Selection, varied: Sequence[str]) -> list[Family]:
    """Groups of at least two conditions that are equal in every setting that is not varied.

    varied: parts of conditions. A condition that several sweeps share counts once. Of conditions
    with the same values of the varied parts, the one with the most evaluated versions counts, else
    the first.
    """
    groups: dict[Settings, dict[tuple[Any, ...], Cell]] = {}
    for cell in selection.cells:
        values = tuple(value_of(cell, name) for name in varied)
        if None in values:
            continue
        group = groups.setdefault(rest_of(cell, varied), {})
        if values not in group or versions(cell) > versions(group[values]):
            group[values] = cell
    return [Family(tuple(group.values())) for group in groups.values() if len(group) > 1]

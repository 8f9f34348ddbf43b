"""Group conditions that may be compared: those equal in every setting except the varied ones."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from rlhf_lab_analysis.comparison.cell import Cell

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
Settings: TypeAlias = tuple[tuple[str, str], ...]
Level: TypeAlias = tuple[Any, ...]
# Conditions that are equal in every setting except the varied ones, by the values of these.
Family: TypeAlias = Mapping[Level, Cell]


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


def with_most_versions(
    cells: Iterable[Cell], key: Callable[[Cell], Hashable]
) -> dict[Hashable, Cell]:
    """Of conditions with the same key the one with the most evaluated versions, else the first."""
    found: dict[Hashable, Cell] = {}
    for cell in cells:
        name = key(cell)
        if name not in found or versions(cell) > versions(found[name]):
            found[name] = cell
    return found


def versions(cell: Cell) -> int:
    """The number of evaluated versions that every run of the condition has."""
    return min(len(rows) for rows in cell.rows.values())


def drop_shared(cells: Sequence[Cell]) -> list[Cell]:
    """Each condition once if sweeps share it (`with_most_versions`)."""
    return list(with_most_versions(cells, lambda cell: cell.training).values())


def families(cells: Sequence[Cell], varied: Sequence[str]) -> list[Family]:
    """Groups of at least two conditions that are equal in every setting that is not varied.

    varied: parts of conditions. Of conditions with the same settings, or with the same values of
    the varied parts, one counts (`with_most_versions`).
    """
    known = {cell: tuple(value_of(cell, name) for name in varied) for cell in cells}
    whole = [cell for cell, values in known.items() if None not in values]
    rests = {cell: rest_of(cell, varied) for cell in whole}
    kept = with_most_versions(whole, lambda cell: (rests[cell], known[cell]))
    groups: dict[Settings, dict[Level, Cell]] = {}
    for cell in kept.values():
        groups.setdefault(rests[cell], {})[known[cell]] = cell
    return [group for group in groups.values() if len(group) > 1]


def levels_of(family: Family, varied: Sequence[str]) -> dict[str, list[Any]]:
    """The values of each varied part among the conditions, in order."""
    columns = zip(*family, strict=True)
    return {
        name: sorted(set(column), key=order) for name, column in zip(varied, columns, strict=True)
    }


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

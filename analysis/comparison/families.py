"""Which conditions may be compared: those alike in every setting but the ones that are varied."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from analysis.comparison.selection import Cell
from analysis.tables.group_checks import compared

SNAPSHOTS = "eval.snapshots"
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
Settings = tuple[tuple[str, str], ...]


def value(cell: Cell, name: str) -> Any:
    """A part of the condition; what tables have no column of is in the config."""
    return cell.parts[name] if name in cell.parts else cell.config(keys_of(name)[0])


def keys_of(name: str) -> tuple[str, ...]:
    """The keys of the config that a part stands for; any other name is a key itself."""
    return KEYS.get(name, (name,))


def settings_of(cell: Cell) -> Settings:
    """What a condition's runs were made with, by dotted key; without seeds, and without how often
    they were evaluated, which changes nothing in them."""
    first = cell.configs[cell.seeds[0]]
    return tuple(item for item in sorted(compared(first).items()) if item[0] != SNAPSHOTS)


def rest_of(cell: Cell, varied: Iterable[str]) -> Settings:
    """The settings that must be the same between conditions that differ in these parts."""
    keys = {key for name in varied for key in keys_of(name)}
    groups = tuple(key for key in keys if key.endswith("."))
    return tuple(
        item
        for item in settings_of(cell)
        if item[0] not in keys and f"{item[0]}." not in groups and not item[0].startswith(groups)
    )


def versions(cell: Cell) -> int:
    """How many versions every run of it was evaluated at."""
    return min(len(rows) for rows in cell.rows.values())


def once(cells: Sequence[Cell]) -> list[Cell]:
    """Each condition once where sweeps share it: of those with the same settings in the same
    environment the one with the most evaluated versions, else the first."""
    found: dict[tuple[str, Settings], Cell] = {}
    for cell in cells:
        key = (cell.env, settings_of(cell))
        if key not in found or versions(cell) > versions(found[key]):
            found[key] = cell
    return list(found.values())

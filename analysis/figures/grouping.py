"""Group conditions that can be compared whatever they differ in, and name them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from rlhf_lab_analysis.comparison.cell import Cell
from rlhf_lab_analysis.comparison.families import Family, order, value_of
from rlhf_lab_analysis.figures.families import group_by
from rlhf_lab_analysis.figures.style import plain

Grouping: TypeAlias = Callable[[Sequence[Cell]], list[Family]]
# What distinguishes conditions; colours stand for the first that does.
KEYS = (
    "algo mode correction updates_per_round max_staleness passes group_size proxy reward model"
).split()
# Conditions of one panel: rows that a page can hold beside others.
MOST = 30
ROUNDED = "generator.round_weights"
# Settings that make environments, over which conditions are put together.
SCALES = ("model.", "proxy.", "task.")


def by_sweep(cells: Sequence[Cell]) -> list[Family]:
    """All conditions of a sweep, over all its environments, in parts if they are very many."""
    return in_parts(comparable(group_by(cells, lambda cell: cell.sweep)))


def by_env(cells: Sequence[Cell]) -> list[Family]:
    """All conditions of a sweep in one environment, whose scores are of one scale."""
    return comparable(group_by(cells, lambda cell: (cell.sweep, cell.env)))


def modes_first(cells: Sequence[Cell]) -> list[Family]:
    """The same, those first that have sync beside async."""

    def is_without(family: Family) -> bool:
        return not {"sync", "async"} <= {str(cell.parts["mode"]) for cell in family.cells}

    return sorted(by_env(cells), key=is_without)


def by_algo(cells: Sequence[Cell]) -> list[Family]:
    """Conditions of one environment, each algorithm by itself where something else varies within
    algorithms, in parts if they are very many."""
    parted = []
    for family in by_env(cells):
        by_name = group_by(family.cells, lambda cell: str(cell.parts["algo"]))
        parted += comparable(by_name) or [family]
    return in_parts(parted)


def in_parts(families: Sequence[Family]) -> list[Family]:
    """The families, each with more than MOST conditions in parts that are equal in a setting: the
    one that divides it into the fewest, whichever scale the policy has."""
    return [part for family in families for part in parts_of(family)]


def parts_of(family: Family) -> list[Family]:
    """The family itself if it is small enough, or if nothing divides it."""
    if len({cell.condition for cell in family.cells}) <= MOST:
        return [family]
    divided = (divide(family.cells, key) for key in dividing_keys(family))
    parts = next((parts for parts in divided if len(parts) > 1), [])
    return in_parts(comparable(parts)) or [family]


def divide(cells: Sequence[Cell], key: str) -> list[list[Cell]]:
    """By the value of a setting. Conditions that would be alone are put together, or to the last
    part if there is one such condition."""
    groups = group_by(cells, lambda cell: cell.settings[key])
    parts = [group for group in groups if len(group) > 1]
    alone = [group[0] for group in groups if len(group) == 1]
    if len(alone) == 1 and parts:
        parts[-1] += alone
    elif alone:
        parts.append(alone)
    return parts


def dividing_keys(family: Family) -> list[str]:
    """The settings that all conditions have and that vary, those of fewest values first."""
    settings = [cell.settings for cell in family.cells]
    values = {
        key: len({each[key] for each in settings})
        for key in set.intersection(*(set(each) for each in settings))
        if not key.startswith(SCALES)
    }
    return sorted((key for key in values if values[key] > 1), key=lambda key: (values[key], key))


def comparable(groups: Sequence[Sequence[Cell]]) -> list[Family]:
    """The groups of two conditions at least, each in the order of its parts."""
    return [Family(tuple(sorted(group, key=rank))) for group in groups if len(group) > 1]


def rank(cell: Cell) -> tuple[object, ...]:
    """The freshest first: no correction, sync, the trainer's own weights, small N, S, T and K."""
    parts = cell.parts
    # Older runs lack the key.
    is_rounded = cell.settings.get(ROUNDED, "none") != "none"
    mode = (parts["mode"] != "sync", is_rounded)
    first = (str(parts["algo"]), parts["correction"] != "none", *mode)
    numbers = ("max_staleness", "updates_per_round", "passes", "group_size")
    return (*first, *(order(parts[name] or 0) for name in numbers), cell.condition, cell.env)


def baseline(family: Family) -> Cell:
    """What others are compared with: the freshest of them."""
    return min(family.cells, key=lambda cell: rank(cell)[1:])


def keys_of(family: Family) -> list[str]:
    """The parts in which the conditions of a family differ; the algorithm if there are none."""
    differ = [key for key in KEYS if len({str(value_of(c, key)) for c in family.cells}) > 1]
    return differ or ["algo"]


def names_of(family: Family) -> list[str]:
    """A name for each condition: the parts that differ; settings too where those are not enough."""
    return distinct_names(family.cells, keys_of(family))


def distinct_names(cells: Sequence[Cell], keys: Sequence[str]) -> list[str]:
    """A name for each condition by these parts, with as few settings as make each unique; all of it
    where no setting does."""
    short = [cell.title(keys) for cell in cells]
    settings = [cell.settings for cell in cells]
    named = [{"": name} | own for name, own in zip(short, settings, strict=True)]
    more = separating_keys(named, [""])
    names = [
        " ".join([name, *(setting_name(key, own) for key in more[1:])]).strip() or "no correction"
        for name, own in zip(short, settings, strict=True)
    ]
    return names if len({*names}) == len(names) else [cell.condition for cell in cells]


def separating_keys(settings: Sequence[Mapping[str, str]], begun: Sequence[str] = ()) -> list[str]:
    """Few keys of which no two of these settings have the same values, as far as any differ: those
    of `begun`, then at each step the one that separates most, the first by name among equals."""
    names = sorted({key for each in settings for key in each})
    keys = [*begun]

    def groups(chosen: Sequence[str]) -> int:
        return len({tuple(each.get(key) for key in chosen) for each in settings})

    while (now := groups(keys)) < len(settings):
        best = max(names, key=lambda key: groups([*keys, key]), default="")
        if groups([*keys, best]) == now:
            break
        keys.append(best)
    return keys


def setting_name(key: str, settings: Mapping[str, str]) -> str:
    """A setting for a title, which has room for the last word of its key, or for that of its
    group."""
    word = key.removesuffix(".name").rpartition(".")[2]
    return plain(f"{word}={settings.get(key, 'none')}")

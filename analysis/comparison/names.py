"""Name conditions by what differs between them, in words."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rlhf_lab_analysis.comparison.cell import Cell
from rlhf_lab_analysis.comparison.families import KEYS, order
from rlhf_lab_analysis.sources.conditions import FORKED, LETTERS, NUMBERS, PARTS, fork_in_name
from rlhf_lab_analysis.words import in_words, label, setting_text

# The parts of a condition in the order in which a name has them.
FIRST = ("algo", "mode", *(part for part in PARTS if part not in ("algo", "mode")), *NUMBERS)
# Settings in which conditions often differ, before the others.
NEXT = ("optim.lr", "algo.kl_coef", "run.updates")
FORK = "fork"
# The condition's own name comes last: of tables without settings it alone distinguishes.
SWEEP, TASK, CONDITION = "sweep", "task", "condition"


@dataclass(frozen=True, eq=False)
class Naming:
    """keys: the settings that distinguish the conditions, most important first. follow: the
    settings that differ too, always together with some of the keys. names: of the conditions."""

    cells: tuple[Cell, ...]
    keys: tuple[str, ...]
    follow: tuple[str, ...]
    names: tuple[str, ...]

    def of(self, cell: Cell) -> str:
        """The name of one of the conditions."""
        return self.names[self.cells.index(cell)]

    @property
    def numeric_keys(self) -> list[str]:
        """The keys of which all conditions have a number, and together at least three."""
        found = []
        for key in self.keys:
            values = {named_value(cell, key) for cell in self.cells}
            is_number = all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
            if is_number and len(values) > 2:
                found.append(key)
        return found


def naming(cells: Sequence[Cell], known: Sequence[str] = ()) -> Naming:
    """The names of these conditions in the order of their values. known: keys that a name need not
    have, since a panel's title has them."""
    groups: dict[Hashable, list[Cell]] = {(): list(cells)}
    groups = split(groups, known)
    keys: list[str] = []
    follow: list[str] = []
    for key in [*FIRST, *other_keys(cells), FORK, SWEEP, CONDITION]:
        if key in known or len({named_value(cell, key) for cell in cells}) < 2:
            continue
        finer = split(groups, [key])
        if len(finer) > len(groups):
            groups = finer
            keys.append(key)
        elif key != CONDITION and not any(
            key.startswith(KEYS.get(part, ("\0",))) for part in (*keys, *known)
        ):
            follow.append(key)
    ordered = tuple(sorted(cells, key=lambda cell: [order(named_value(cell, key)) for key in keys]))
    return Naming(ordered, tuple(keys), tuple(follow), tuple(name_of(c, keys) for c in ordered))


def within_sweeps(cells: Sequence[Cell], known: Sequence[str] = ()) -> list[Naming]:
    """The conditions of each sweep with names of what differs within it; algorithm and mode are
    named where they differ between sweeps. known: as in `naming`."""
    first = [key for key in FIRST[:2] if len({named_value(cell, key) for cell in cells}) > 1]
    found = []
    for sweep in sorted({cell.sweep for cell in cells}):
        own = naming([cell for cell in cells if cell.sweep == sweep], known)
        keys = list(dict.fromkeys([*first, *own.keys]))
        found.append(replace(own, names=tuple(name_of(cell, keys) for cell in own.cells)))
    return found


def split(groups: Mapping[Hashable, list[Cell]], keys: Sequence[str]) -> dict[Hashable, list[Cell]]:
    """The groups, further apart by the values of these keys."""
    found: dict[Hashable, list[Cell]] = {}
    for name, group in groups.items():
        for cell in group:
            values = tuple(str(named_value(cell, key)) for key in keys)
            found.setdefault((name, values), []).append(cell)
    return found


def other_keys(cells: Sequence[Cell]) -> list[str]:
    """The settings in which conditions differ, other than parts and numbers of a condition."""
    settings = [cell.settings for cell in cells]
    every = sorted({key for one in settings for key in one})
    keys = {*NUMBERS.values(), *(f"{part}.name" for part in PARTS)}
    found = [k for k in every if k not in keys and len({one.get(k) for one in settings}) > 1]
    return [*(key for key in NEXT if key in found), *(key for key in found if key not in NEXT)]


def named_value(cell: Cell, key: str) -> Any:
    """The value of a part, the task, the sweep, the fork or the name of a condition, or the text
    by which conditions are compared in a setting, None where that is left at its default."""
    if key == TASK:
        # Scores of one task are of one scale, whatever policy has them.
        return cell.parts.get(TASK) or cell.env
    if key == FORK:
        return fork_in_name(cell.condition)
    if key in (SWEEP, CONDITION):
        return getattr(cell, key)
    if key in FIRST:
        return cell.parts.get(key)
    text = cell.settings.get(key)
    return text if text is None else number_in(text)


def number_in(text: str) -> Any:
    """The number that a setting's text is, else the text."""
    try:
        number = float(text)
    except ValueError:
        return text
    return int(number) if number.is_integer() else number


def name_of(cell: Cell, keys: Sequence[str]) -> str:
    """A condition by its values of these keys; by its parts where there are no keys."""
    texts = [value_text(key, named_value(cell, key)) for key in keys or ("algo", "mode")]
    return in_words(" ".join(filter(None, texts))) or cell.condition


def value_text(key: str, value: Any) -> str:
    """A value of a key in words."""
    if key in (SWEEP, CONDITION):
        return str(value)
    if key == FORK:
        return str(value).strip() or f"not {FORKED.split()[0]}"
    if value is None and key in PARTS:
        return ""
    return setting_text(key, value)


def key_text(key: str) -> str:
    """A key as a sentence names it: `N`, `learning rate`."""
    return LETTERS.get(key) or label(key)

"""Name the conditions of a page by what differs, and choose how each is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from rlhf_lab_analysis.comparison.cell import Cell
from rlhf_lab_analysis.comparison.families import order
from rlhf_lab_analysis.comparison.names import (
    Naming,
    key_text,
    name_of,
    named_value,
    naming,
    value_text,
    within_sweeps,
)
from rlhf_lab_analysis.plots.style import Look, Style, looks
from rlhf_lab_analysis.ranges import first_few, listed
from rlhf_lab_analysis.words import in_words

# Keys of a title whose values are named, and values of a key.
MOST_KEYS, MOST_VALUES = 2, 3


@dataclass(frozen=True, eq=False)
class Group:
    """A condition in one environment and sweep. title: what distinguishes it from the others of
    the environment. look: as a figure of its sweep draws it."""

    cell: Cell
    title: str
    look: Look

    def last(self, column: str) -> dict[int, float]:
        """The last number of each run, by seed: of its last judged version, of its last round if
        none was judged; NaN where there is none."""
        is_judged = any(map(len, self.cell.rows.values()))
        frames = self.cell.rows if is_judged else self.cell.recorded
        return {seed: last(frames[seed], column) for seed in self.cell.seeds}


def last(frame: pd.DataFrame, column: str) -> float:
    """The last value of a column; NaN where there is none."""
    return float(frame[column].iloc[-1]) if column in frame and len(frame) else float("nan")


def name_groups(cells: Sequence[Cell]) -> list[Group]:
    """The conditions of each environment and sweep in order, each with its name."""
    found = []
    for env in dict.fromkeys(cell.env for cell in cells):
        sweeps = within_sweeps([cell for cell in cells if cell.env == env])
        for named in sweeps:
            found += of_sweep(named, is_one_of_many=len(sweeps) > 1)
    return found


def of_sweep(named: Naming, is_one_of_many: bool) -> list[Group]:
    """The conditions of one environment and sweep."""
    names = [
        in_words(f"{name} ({cell.sweep})") if cell.sweep and is_one_of_many else name
        for cell, name in zip(named.cells, named.names, strict=True)
    ]
    found = looks(names, Style(), len(named.numeric_keys) == len(named.keys))
    return [Group(cell, name, found[name]) for cell, name in zip(named.cells, names, strict=True)]


def page_title(cells: Sequence[Cell]) -> str:
    """What the conditions of a page differ in, and what they share: `sync against async (PPO,
    TL;DR nano, 0.3M)`."""
    if not cells:
        return "Runs without a comparison"
    keys = naming(cells).keys
    if not keys:
        return f"One condition: {name_of(cells[0], ())}"
    differ = listed(first_few([key_text(key) for key in keys]))
    if len(keys) <= MOST_KEYS:
        differ = "; ".join(
            difference(key, {named_value(cell, key) for cell in cells}) for key in keys
        )
    else:
        differ = f"{len(cells)} conditions that differ in {differ}"
    shared = [
        value_text(part, cells[0].parts[part])
        for part in ("algo", "task", "model")
        if len({cell.parts[part] for cell in cells}) == 1 and cells[0].parts[part]
    ]
    return f"{differ} ({in_words(listed(shared))})" if shared else differ


def difference(key: str, values: set[object]) -> str:
    """The values of a key: `sync against async`, `PPO, GRPO, RLOO`, `N = 1, 4, 16`."""
    ordered = sorted(values, key=order)
    if all(isinstance(value, int | float) for value in ordered):
        few = len(ordered) <= MOST_VALUES
        ends = listed(ordered) if few else f"{ordered[0]} to {ordered[-1]}"
        return f"{key_text(key)} = {ends}"
    if len(ordered) > MOST_VALUES:
        return f"{len(ordered)} values of {key_text(key)}"
    texts = [in_words(value_text(key, value)) for value in ordered]
    texts.sort(key=lambda text: text != "sync")
    return " against ".join(texts) if len(texts) == 2 else listed(texts)

"""Hyperparameters of the runs, from their configs (arXiv:2410.18252, tables 2 to 5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from analysis.comparison.selection import Cell, Selection
from analysis.sources.record import as_seed
from analysis.tables.group_checks import compared
from analysis.tables.table import Tables
from analysis.written.asked import Asked
from analysis.written.basis import left_out_told, runs_told
from analysis.written.entries import Entry, Written
from analysis.written.naming import key, titles

# Shown though they are the same everywhere: by these a run could be repeated.
MATTER = (
    "task.name",
    "task.max_prompt_tokens",
    "task.max_response_tokens",
    "model.name",
    "run.",
    "algo.",
    "optim.",
    "mode.name",
    "mode.max_staleness",
    "correction.",
    "generator.name",
    "generator.temperature",
    "engine.name",
    "reward.name",
    "reward.missing_eos",
    "proxy.name",
    "judge.name",
    "eval.split",
    "eval.prompts",
    "eval.temperature",
    "sft.",
    "labels.",
    "reward_model.",
)
ABSENT = "-"
# Said by the column, or of no influence on what is learnt.
LEFT_OUT = ("algo.name", "sft.threads", "labels.threads", "reward_model.threads")


def settings(_: Tables, selection: Selection, asked: Asked) -> list[Written]:
    """A table for each sweep: a column an algorithm, or a condition where all are of one."""
    made = []
    for sweep in dict.fromkeys(cell.sweep for cell in selection.cells):
        cells = selection.only(sweep=sweep).cells
        columns = columns_of(cells)
        caption = (
            f"Settings of {sweep or 'runs of no sweep'}, as their configs say; several values "
            "were swept, a dash is a setting that there is not. Left out are settings that are "
            f"the same in all and that do not decide what is learnt. {runs_told(cells)}."
        )
        name = f"settings-{sweep}" if sweep else "settings"
        heads = ("setting", *columns)
        warnings = left_out_told(selection)
        made.append(Written(name, caption, heads, tuple(rows_of(columns)), warnings))
    return made


def columns_of(cells: Sequence[Cell]) -> dict[str, list[Cell]]:
    """The conditions of each column by its head."""
    algorithms = dict.fromkeys(str(cell.parts["algo"]) for cell in cells)
    if len(algorithms) > 1:
        return {name: [c for c in cells if str(c.parts["algo"]) == name] for name in algorithms}
    names = titles(cells)
    found: dict[str, list[Cell]] = {}
    for cell in cells:
        found.setdefault(names[key(cell)], []).append(cell)
    return found


def rows_of(columns: Mapping[str, Sequence[Cell]]) -> list[tuple[Entry, ...]]:
    """The settings that matter, or that differ."""
    held = [[values_of(cell) for cell in cells] for cells in columns.values()]
    keys = dict.fromkeys(name for configs in held for config in configs for name in config)
    rows: list[tuple[Entry, ...]] = []
    for name in keys:
        entries = [told([config.get(name, {ABSENT}) for config in configs]) for configs in held]
        differs, is_said = len(set(entries)) > 1, name in LEFT_OUT or set(entries) == {ABSENT}
        if (differs or name.startswith(MATTER)) and not is_said:
            rows.append((name, *entries))
    return rows


def values_of(cell: Cell) -> dict[str, set[str]]:
    """Every value that runs of a condition have of each setting; their seeds aside."""
    found: dict[str, set[str]] = {}
    for config in cell.configs.values():
        for name, value in compared(config).items():
            found.setdefault(name, set()).add(value)
    return found


def told(values: Sequence[set[str]]) -> str:
    """All values in order, numbers by size."""
    return ", ".join(sorted(set[str]().union(*values), key=by_size)) or ABSENT


def by_size(text: str) -> tuple[bool, float, str]:
    number = as_seed(text)
    return number is None, number or 0, text

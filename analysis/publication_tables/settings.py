"""Hyperparameters of the runs, from their configs (arXiv:2410.18252, tables 2 to 5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rlhf_lab_analysis.comparison.cell import Cell
from rlhf_lab_analysis.comparison.selection import Selection
from rlhf_lab_analysis.publication_tables.entries import Entry, PublicationTable
from rlhf_lab_analysis.publication_tables.naming import ConditionColumns
from rlhf_lab_analysis.publication_tables.options import TableOptions
from rlhf_lab_analysis.shown_runs import runs_text, seeds_of
from rlhf_lab_analysis.sources.record import as_seed
from rlhf_lab_analysis.tables.group_checks import compared_settings
from rlhf_lab_analysis.tables.table import Tables

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
# Named by the column, or of no influence on what is learnt.
LEFT_OUT = ("algo.name", "sft.threads", "labels.threads", "reward_model.threads")


def settings(_: Tables, selection: Selection, options: TableOptions) -> list[PublicationTable]:
    """A table for each sweep: a column an algorithm, or a condition where all are of one."""
    tables = []
    for sweep in dict.fromkeys(cell.sweep for cell in selection.cells):
        cells = selection.only(sweep=sweep).cells
        columns = columns_of(cells)
        caption = (
            f"Settings of {sweep or 'runs of no sweep'}, from their configs; several values were "
            "swept, a dash is a setting that there is not. Left out are settings that are the same "
            f"in all and that do not decide what is learnt. {runs_text(seeds_of(cells))}."
        )
        name = f"settings-{sweep}" if sweep else "settings"
        rows = tuple(rows_of(columns))
        tables.append(PublicationTable(name, caption, ("setting", *columns), rows))
    return tables


def columns_of(cells: Sequence[Cell]) -> dict[str, list[Cell]]:
    """The conditions of each column by its head."""
    heads = [str(cell.parts["algo"]) for cell in cells]
    if len({*heads}) == 1:
        heads = [*map(ConditionColumns(cells).title, cells)]
    columns: dict[str, list[Cell]] = {}
    for head, cell in zip(heads, cells, strict=True):
        columns.setdefault(head, []).append(cell)
    return columns


def rows_of(columns: Mapping[str, Sequence[Cell]]) -> list[tuple[Entry, ...]]:
    """The settings that matter, or that differ."""
    settings = [[values_of(cell) for cell in cells] for cells in columns.values()]
    keys = dict.fromkeys(name for configs in settings for config in configs for name in config)
    rows: list[tuple[Entry, ...]] = []
    for name in keys:
        entries = [
            in_order(set[str]().union(*(config.get(name, {ABSENT}) for config in configs)))
            for configs in settings
        ]
        differs, is_left_out = len(set(entries)) > 1, name in LEFT_OUT or set(entries) == {ABSENT}
        if (differs or name.startswith(MATTER)) and not is_left_out:
            rows.append((name, *entries))
    return rows


def values_of(cell: Cell) -> dict[str, set[str]]:
    """Every value that runs of a condition have of each setting; their seeds aside."""
    values: dict[str, set[str]] = {}
    for config in cell.configs.values():
        for name, value in compared_settings(config).items():
            values.setdefault(name, set()).add(value)
    return values


def in_order(values: set[str]) -> str:
    """All values in order, numbers by size."""
    return ", ".join(sorted(values, key=by_size)) or ABSENT


def by_size(text: str) -> tuple[bool, float, str]:
    number = as_seed(text)
    return number is None, number or 0, text

"""Hyperparameters of the runs, from their configs (arXiv:2410.18252, tables 2 to 5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlhf_lab_analysis.comparison.cell import Cell
from rlhf_lab_analysis.comparison.families import order
from rlhf_lab_analysis.comparison.names import number_in
from rlhf_lab_analysis.publication_tables.conditions import Conditions, runs_text
from rlhf_lab_analysis.publication_tables.formats import PublicationTable, Row
from rlhf_lab_analysis.publication_tables.options import TableOptions
from rlhf_lab_analysis.ranges import listed
from rlhf_lab_analysis.tables.table import Tables
from rlhf_lab_analysis.words import in_words

# Shown though they are the same everywhere: by these a run could be repeated.
MATTER = (
    *("task.name", "task.max_prompt_tokens", "task.max_response_tokens", "model.name", "run."),
    *("algo.", "optim.", "mode.name", "mode.max_staleness", "correction.", "generator.name"),
    *("generator.temperature", "engine.name", "reward.name", "reward.missing_eos", "proxy.name"),
    *("judge.name", "eval.split", "eval.prompts", "eval.temperature", "sft.", "labels."),
    "reward_model.",
)
ABSENT = "-"
# Named by the column, or of no influence on what is learnt.
LEFT_OUT = ("algo.name", "sft.threads", "labels.threads", "reward_model.threads")
# Conditions of one algorithm that have a column each.
MOST = 6


def settings(_: Tables, conditions: Conditions, options: TableOptions) -> list[PublicationTable]:
    """A table for each sweep: a column for each algorithm; for each of a few conditions where all
    are of one."""
    tables = []
    for sweep in dict.fromkeys(cell.sweep for cell in conditions.cells):
        cells = [cell for cell in conditions.cells if cell.sweep == sweep]
        columns = columns_of(cells, conditions)
        caption = (
            f"Settings of {sweep or 'runs of no sweep'}, from their configs; several values were "
            "swept, a dash is a setting that there is not. Settings that are the same in all and "
            f"do not decide what is learnt are left out. {runs_text(cells)}"
        )
        name = f"settings-{sweep}" if sweep else "settings"
        heads = ("setting", *columns)
        tables.append(PublicationTable(name, caption, heads, tuple(rows_of(columns))))
    return tables


def columns_of(cells: Sequence[Cell], conditions: Conditions) -> dict[str, list[Cell]]:
    """The conditions of each column by its head."""
    columns: dict[str, list[Cell]] = {}
    is_by_condition = len({cell.parts["algo"] for cell in cells}) == 1 and len(cells) <= MOST
    for cell in cells:
        algo = in_words(str(cell.parts["algo"]))
        columns.setdefault(conditions.title(cell) if is_by_condition else algo, []).append(cell)
    return columns


def rows_of(columns: Mapping[str, Sequence[Cell]]) -> list[Row]:
    """The settings that matter, or that differ."""
    settings = [[cell.settings for cell in cells] for cells in columns.values()]
    keys = {key for found in settings for one in found for key in one}
    rows: list[Row] = []
    for key in sorted(keys.difference(LEFT_OUT)):
        values = [{one.get(key, ABSENT) for one in found} for found in settings]
        texts = [
            listed(sorted(own, key=lambda text: order(number_in(str(text))))) or ABSENT
            for own in values
        ]
        if len({*texts}) > 1 or key.startswith(MATTER):
            rows.append((key, *texts))
    return rows


def by_size(text: str) -> tuple[bool, float, Any]:
    return order(number_in(text))

"""Results: a row for each condition, an interval for each metric and cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TypeAlias

import numpy as np

from rlhf_lab_analysis.comparison.cell import Cell
from rlhf_lab_analysis.comparison.comparable_time import TIMES, why_not_comparable
from rlhf_lab_analysis.publication_tables.conditions import Conditions, runs_text, task_of
from rlhf_lab_analysis.publication_tables.formats import Measured, Notes, PublicationTable, Row
from rlhf_lab_analysis.publication_tables.options import Metric, TableOptions
from rlhf_lab_analysis.ranges import ranges_text
from rlhf_lab_analysis.statistics.intervals import mean_ends
from rlhf_lab_analysis.statistics.results import Method, size_warnings
from rlhf_lab_analysis.tables.table import Tables
from rlhf_lab_analysis.words import in_words, is_never_negative

BySeed: TypeAlias = Mapping[int, float]
SAME = "where all seeds are equal, no interval is given"
ONE_SEED = "one seed: no interval, and nothing is known of other seeds"


def results(_: Tables, conditions: Conditions, options: TableOptions) -> list[PublicationTable]:
    """The last evaluated version of each condition, and what it cost up to there."""
    cells = conditions.cells
    metrics = options.metrics_of(cells) if cells else []
    rows = {conditions.entries(cell): [one.ends(cell) for one in metrics] for cell in cells}
    what = f"Results at the last evaluated version. {runs_text(cells)}" if cells else ""
    return table_of("results", what, conditions.heads, rows, metrics, options, cells)


def sft(_: Tables, conditions: Conditions, options: TableOptions) -> list[PublicationTable]:
    """Version 0 of each task and policy (arXiv:2410.18252, table 1): a seed counts once, whatever
    was trained from it."""
    cells = [cell for cell in conditions.cells if starts_at_zero(cell)]
    metrics = [one for one in options.metrics_of(cells) if not one.is_cost] if cells else []
    policies: dict[tuple[str, ...], list[Cell]] = {}
    for cell in cells:
        named = (in_words(task_of(cell)), in_words(str(cell.parts["model"])))
        policies.setdefault(named, []).append(cell)
    rows = {named: [starts(own, one) for one in metrics] for named, own in policies.items()}
    what = "SFT policies (version 0); each seed counts once, whatever was trained from it."
    return table_of("sft", what, ("task", "policy"), rows, metrics, options, ())


def starts_at_zero(cell: Cell) -> bool:
    """Whether all runs were judged before the first round."""
    return all(int(rows["version"].iloc[0]) == 0 for rows in cell.rows.values())


def starts(cells: Sequence[Cell], metric: Metric) -> BySeed:
    """A metric of version 0, the mean of the runs of a seed."""
    found: dict[int, list[float]] = {}
    for cell in (one for one in cells if one.has(metric.column)):
        for seed, value in cell.starts(metric.column).items():
            found.setdefault(seed, []).append(value)
    return {seed: fmean(values) for seed, values in found.items()}


def table_of(
    name: str,
    what: str,
    heads: tuple[str, ...],
    rows: Mapping[tuple[str, ...], Sequence[BySeed]],
    metrics: Sequence[Metric],
    options: TableOptions,
    timed: Sequence[Cell],
) -> list[PublicationTable]:
    """Means over seeds. rows: the scores of each metric by what identifies them; empty where a run
    has none. timed: conditions whose seconds are compared. None without rows."""
    notes, made = Notes(), list[Row]()
    for named, scores in rows.items():
        seeds = {seed for found in scores for seed in found}
        numbers = [
            over_seeds(found, named[-1], metric, options.interval.level, notes)
            for metric, found in zip(metrics, scores, strict=True)
        ]
        made.append((*named, len(seeds), ranges_text(seeds), *numbers))
    notes.add("", time_note(metrics, timed))
    caption = f"{what} {options.interval_text(metrics)}"
    columns = (*heads, "n", "seeds", *(metric.name for metric in metrics))
    return [PublicationTable(name, caption, columns, tuple(made), notes.lines)] if made else []


def over_seeds(
    scores: BySeed, name: str, metric: Metric, level: float, notes: Notes
) -> Measured | None:
    """The mean with its t interval from two seeds on, of shares on log odds; what is never negative
    has no negative end. None, and a note, without scores."""
    values = [scores[seed] for seed in sorted(scores)]
    if not values:
        notes.add(name, f"not every run has {metric.column}")
        return None
    if min(values) == max(values):
        notes.add(name, ONE_SEED if len(values) == 1 else SAME)
        return Measured(values[0], digits=metric.digits)
    notes.add(name, *size_warnings([len(values)], Method.t))
    is_within = metric.is_share and min(values) >= 0 and max(values) <= 1
    low, high = mean_ends(values, level, is_within)
    # In the order of size, as statistics.aggregates has it: the same last bit.
    point = float(np.sort(values) @ np.full(len(values), 1 / len(values)))
    low = max(low, min(0.0, point)) if is_never_negative(metric.column) else low
    return Measured(point, low, high, metric.digits)


def time_note(metrics: Sequence[Metric], cells: Sequence[Cell]) -> str:
    """Why seconds of these conditions are no comparison, where a table has some."""
    is_timed = any(metric.column in TIMES for metric in metrics)
    reason = why_not_comparable(cells) if is_timed else ""
    return f"seconds are not comparable: {reason}" if reason else ""

"""Results: a row for each condition, an interval for each metric and cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rlhf_lab_analysis.comparison.cell import Cell
from rlhf_lab_analysis.comparison.comparable_time import TIMES, why_not_comparable
from rlhf_lab_analysis.publication_tables.conditions import Conditions, runs_text, task_of
from rlhf_lab_analysis.publication_tables.entries import (
    Entry,
    Measured,
    Notes,
    PublicationTable,
    Row,
)
from rlhf_lab_analysis.publication_tables.options import Metric, TableOptions
from rlhf_lab_analysis.ranges import ranges_text
from rlhf_lab_analysis.rounding import interval_text
from rlhf_lab_analysis.statistics.aggregates import MEASURES, aggregates
from rlhf_lab_analysis.statistics.results import Estimate
from rlhf_lab_analysis.tables.table import Tables
from rlhf_lab_analysis.words import in_words, is_never_negative

SAME = "where all seeds are equal, no interval is given"
ONE_SEED = "one seed: no interval, and nothing is known of other seeds"


def results(_: Tables, conditions: Conditions, options: TableOptions) -> list[PublicationTable]:
    """The last evaluated version of each condition, and what it cost up to there."""
    cells = conditions.cells
    if not cells:
        return []
    metrics, notes = options.metrics_of(cells), Notes()
    rows = []
    for cell in cells:
        name = conditions.title(cell)
        numbers = [at_end(cell, name, metric, options, notes) for metric in metrics]
        seeds = (len(cell.seeds), ranges_text(cell.seeds))
        rows.append((*conditions.entries(cell), *seeds, *numbers))
    caption = (
        f"Results at the last evaluated version: {options.measure} over seeds with its "
        f"{interval_text(options.interval, of_shares=True)}. {runs_text(cells)}"
    )
    notes.add("", time_note(metrics, cells))
    columns = (*conditions.heads, "n", "seeds", *(one.name for one in metrics))
    return [PublicationTable("results", caption, columns, tuple(rows), notes.lines)]


def sft(_: Tables, conditions: Conditions, options: TableOptions) -> list[PublicationTable]:
    """Version 0 of each task and policy (arXiv:2410.18252, table 1): a seed counts once, whatever
    was trained from it."""
    cells = [cell for cell in conditions.cells if starts_at_zero(cell)]
    metrics = [one for one in options.metrics_of(cells) if not one.is_cost] if cells else []
    rows: list[Row] = []
    notes = Notes()
    policies: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        policies.setdefault((task_of(cell), str(cell.parts["model"])), []).append(cell)
    for policy, own in policies.items():
        seeds = {seed for cell in own for seed in cell.seeds}
        named = (*map(in_words, policy),)
        numbers = [at_start(own, " ".join(named), metric, options, notes) for metric in metrics]
        rows.append((*named, len(seeds), ranges_text(seeds), *numbers))
    caption = (
        f"SFT policies (version 0), each seed once: {options.measure} over seeds with its "
        f"{interval_text(options.interval, of_shares=True)}."
    )
    columns = ("task", "policy", "n", "seeds", *(metric.name for metric in metrics))
    table = PublicationTable("sft", caption, columns, tuple(rows), notes.lines)
    return [table] if rows else []


def starts_at_zero(cell: Cell) -> bool:
    """Whether all runs were judged before the first round."""
    return all(int(rows["version"].iloc[0]) == 0 for rows in cell.rows.values())


def at_end(cell: Cell, name: str, metric: Metric, options: TableOptions, notes: Notes) -> Entry:
    """A metric at the end; None, and a note, where a run lacks it."""
    if scores := metric.ends(cell):
        return over_seeds(scores, name, metric, options, notes)
    notes.add(name, f"not every run has {metric.column}")
    return None


def at_start(
    cells: Sequence[Cell], name: str, metric: Metric, options: TableOptions, notes: Notes
) -> Entry:
    """A metric of version 0, the mean of the runs of a seed."""
    by_seed: dict[int, list[float]] = {}
    for cell in (one for one in cells if one.has(metric.column)):
        for seed, value in cell.starts(metric.column).items():
            by_seed.setdefault(seed, []).append(value)
    means = {seed: sum(found) / len(found) for seed, found in by_seed.items()}
    return over_seeds(means, name, metric, options, notes) if means else None


def over_seeds(
    scores: Mapping[int, float], name: str, metric: Metric, options: TableOptions, notes: Notes
) -> Measured:
    """A measure of seeds, with its interval from two seeds on."""
    values = [scores[seed] for seed in sorted(scores)]
    if min(values) == max(values):
        notes.add(name, ONE_SEED if len(values) == 1 else SAME)
        return Measured(values[0], digits=metric.digits)
    interval = options.interval.for_shares(values) if metric.is_share else options.interval
    measures = {options.measure: MEASURES[options.measure]}
    found = aggregates({"": {"": values}}, interval, measures)[""][options.measure]
    notes.add(name, *found.warnings)
    return measured(found, metric)


def measured(found: Estimate, metric: Metric) -> Measured:
    """An estimate as an entry; what is never negative has no negative end."""
    low = max(found.low, min(0.0, found.point)) if is_never_negative(metric.column) else found.low
    return Measured(found.point, low, found.high, metric.digits)


def time_note(metrics: Sequence[Metric], cells: Sequence[Cell]) -> str:
    """Why seconds of these conditions are no comparison, where a table has some."""
    is_timed = any(metric.column in TIMES for metric in metrics)
    reason = why_not_comparable(cells) if is_timed else ""
    return f"seconds are not comparable: {reason}" if reason else ""

"""Results: a row for each condition, an interval for each metric."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.comparison.selection import Cell, Selection
from analysis.statistics.aggregates import MEASURES, aggregates
from analysis.tables.table import Tables
from analysis.written.asked import Asked
from analysis.written.basis import each_once, interval_told, left_out_told, listed, runs_told
from analysis.written.entries import Entry, Written, measured
from analysis.written.estimates import lacks, over_seeds
from analysis.written.metrics import Metric, metric_of, metrics_of
from analysis.written.naming import key, place_columns, place_of, titles


def results(_: Tables, selection: Selection, asked: Asked) -> list[Written]:
    """The last evaluated version of each condition."""
    cells = list(selection.cells)
    if not cells:
        return []
    metrics = metrics_of(cells, asked.metrics)
    names, places = titles(cells), place_columns(cells)
    rows, warned = [], []
    for cell in cells:
        numbers, told = row_of(cell, metrics, asked)
        own = (*place_of(cell, places), names[key(cell)])
        rows.append((*own, len(cell.seeds), listed(cell.seeds), *numbers))
        warned += told
    caption = (
        f"Results at the last evaluated version: {asked.measure} over seeds with its "
        f"{interval_told(asked.options, of_shares=True)}. {runs_told(cells)}."
    )
    columns = (*places, "condition", "n", "seeds", *(one.name for one in metrics))
    warnings = (*each_once(warned), *left_out_told(selection))
    return [Written("results", caption, columns, tuple(rows), warnings)]


def row_of(cell: Cell, metrics: Sequence[Metric], asked: Asked) -> tuple[list[Entry], list[str]]:
    """The metrics of a condition; None where a run of it lacks one."""
    numbers: list[Entry] = []
    warned: list[str] = []
    for metric in metrics:
        if missing := lacks(cell, metric.column):
            numbers.append(None)
            warned.append(missing)
            continue
        scores = cell.scores(metric.column)
        entry, told = over_seeds(
            scores, asked.measure, asked.options, metric.digits, metric.is_share
        )
        numbers.append(entry)
        warned += told
    return numbers, warned


def aggregated(_: Tables, selection: Selection, asked: Asked) -> list[Written]:
    """Each condition over the environments that all conditions have, as tasks: all measures."""
    held: dict[str, dict[str, Cell]] = {}
    names = titles(selection.cells)
    for cell in selection.cells:
        name = f"{cell.sweep} {names[key(cell)]}".strip()
        if len(cell.seeds) > 1 and cell.has(asked.quality):
            held.setdefault(name, {})[cell.env] = cell
    tasks = set[str]().union(*held.values())
    whole = {name: cells for name, cells in held.items() if set(cells) == tasks}
    if len(tasks) < 2 or not whole:
        return []
    scores = {
        name: {env: [*cell.scores(asked.quality).values()] for env, cell in sorted(cells.items())}
        for name, cells in whole.items()
    }
    every = [one for held in scores.values() for values in held.values() for one in values]
    is_share = metric_of(asked.quality).is_share
    options = asked.options.for_shares(every) if is_share else asked.options
    found = aggregates(scores, options)
    rows: list[tuple[Entry, ...]] = [
        (name, *(measured(found[name][measure]) for measure in MEASURES)) for name in sorted(found)
    ]
    used = [cell for cells in whole.values() for cell in cells.values()]
    caption = (
        f"{asked.quality} of the last evaluated version over {len(tasks)} environments "
        f"({listed(sorted(tasks))}), seeds drawn within each, with its "
        f"{interval_told(asked.options, of_shares=True)}. {runs_told(used)}."
    )
    told = [text for one in found.values() for each in one.values() for text in each.warnings]
    odd = [f"{name} is left out: not in every environment" for name in held if name not in whole]
    columns = ("condition", *(measure.replace("_", " ") for measure in MEASURES))
    return [Written("aggregates", caption, columns, tuple(rows), each_once((*told, *odd)))]

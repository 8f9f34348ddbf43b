"""Results: a row for each condition, an interval for each metric."""

from __future__ import annotations

from rlhf_lab_analysis.comparison.cell import Cell
from rlhf_lab_analysis.comparison.selection import Selection
from rlhf_lab_analysis.publication_tables.entries import Entry, PublicationTable, table_entry
from rlhf_lab_analysis.publication_tables.estimates import last_scores
from rlhf_lab_analysis.publication_tables.metrics import Metric, metrics_of
from rlhf_lab_analysis.publication_tables.naming import ConditionColumns
from rlhf_lab_analysis.publication_tables.options import TableOptions
from rlhf_lab_analysis.ranges import listed, ranges_text, unique
from rlhf_lab_analysis.rounding import interval_text
from rlhf_lab_analysis.shown_runs import runs_text, seeds_of
from rlhf_lab_analysis.statistics.aggregates import MEASURES, aggregates
from rlhf_lab_analysis.tables.table import Tables


def results(_: Tables, selection: Selection, options: TableOptions) -> list[PublicationTable]:
    """The last evaluated version of each condition."""
    cells = selection.cells
    if not cells:
        return []
    metrics, conditions = metrics_of(cells, options.metrics), ConditionColumns(cells)
    rows: list[tuple[Entry, ...]] = []
    warnings: list[str] = []
    for cell in cells:
        numbers, more = last_scores(cell, metrics, options)
        rows.append((*conditions.entries(cell), len(cell.seeds), ranges_text(cell.seeds), *numbers))
        warnings += more
    caption = (
        f"Results at the last evaluated version: {options.measure} over seeds with its "
        f"{interval_text(options.interval, of_shares=True)}. {runs_text(seeds_of(cells))}."
    )
    columns = (*conditions.heads, "n", "seeds", *(one.name for one in metrics))
    return [PublicationTable("results", caption, columns, tuple(rows), unique(warnings))]


def aggregate_results(
    _: Tables, selection: Selection, options: TableOptions
) -> list[PublicationTable]:
    """Each condition over the environments that all conditions have, as tasks: all measures."""
    by_name: dict[str, dict[str, Cell]] = {}
    conditions = ConditionColumns(selection.cells)
    for cell in selection.cells:
        if len(cell.seeds) > 1 and cell.has(options.quality):
            name = f"{cell.sweep} {conditions.title(cell)}".strip()
            by_name.setdefault(name, {})[cell.env] = cell
    tasks = sorted(set[str]().union(*by_name.values()))
    whole = {name: cells for name, cells in by_name.items() if len(cells) == len(tasks)}
    if len(tasks) < 2 or not whole:
        return []
    scores = {
        name: {env: [*cell.scores(options.quality).values()] for env, cell in sorted(cells.items())}
        for name, cells in whole.items()
    }
    every = [one for envs in scores.values() for values in envs.values() for one in values]
    interval = options.interval
    if Metric(options.quality).is_share:
        interval = interval.for_shares(every)
    found = aggregates(scores, interval)
    rows: list[tuple[Entry, ...]] = [
        (name, *(table_entry(found[name][measure]) for measure in MEASURES))
        for name in sorted(found)
    ]
    used = seeds_of([cell for cells in whole.values() for cell in cells.values()])
    caption = (
        f"{options.quality} of the last evaluated version over {len(tasks)} environments "
        f"({listed(tasks)}), seeds drawn within each, with its "
        f"{interval_text(options.interval, of_shares=True)}. {runs_text(used)}."
    )
    warnings = [text for one in found.values() for each in one.values() for text in each.warnings]
    warnings += [
        f"{name} is left out: not in every environment" for name in by_name if name not in whole
    ]
    columns = ("condition", *(measure.replace("_", " ") for measure in MEASURES))
    return [PublicationTable("aggregates", caption, columns, tuple(rows), unique(warnings))]

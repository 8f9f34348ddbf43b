"""The policies that training begins with (arXiv:2410.18252, table 1)."""

from __future__ import annotations

from collections.abc import Sequence

from rlhf_lab.runs.trackers.console import counted
from rlhf_lab_analysis.comparison.cell import Cell
from rlhf_lab_analysis.comparison.selection import Selection
from rlhf_lab_analysis.publication_tables.entries import Entry, PublicationTable
from rlhf_lab_analysis.publication_tables.estimates import estimate_of
from rlhf_lab_analysis.publication_tables.metrics import Metric, metrics_of
from rlhf_lab_analysis.publication_tables.options import TableOptions
from rlhf_lab_analysis.ranges import ranges_text, unique
from rlhf_lab_analysis.rounding import interval_text
from rlhf_lab_analysis.tables.table import Tables

# Version 0 has the same weights in every condition of a seed; digits of sums may differ.
ROUNDING = 1e-6


def sft(_: Tables, selection: Selection, options: TableOptions) -> list[PublicationTable]:
    """Version 0 in each environment: a seed counts once, whatever was trained from it."""
    cells = [cell for cell in selection.cells if starts_at_zero(cell)]
    metrics = metrics_of(cells, options.metrics)
    rows: list[tuple[Entry, ...]] = []
    warnings: list[str] = []
    for env in dict.fromkeys(cell.env for cell in cells):
        own = [cell for cell in cells if cell.env == env]
        seeds = sorted({seed for cell in own for seed in cell.seeds})
        numbers: list[Entry] = []
        for metric in metrics:
            entry, more = start_of(own, metric, options)
            numbers.append(entry)
            warnings += more
        rows.append((env, len(seeds), ranges_text(seeds), *numbers))
    runs = sum(len(cell.seeds) for cell in cells)
    caption = (
        f"SFT policies (version 0), from the evaluations of {counted(runs, 'run')} of "
        f"{counted(len(cells), 'condition')} trained from them; each seed counts once. Mean over "
        f"seeds with its {interval_text(options.interval, of_shares=True)}."
    )
    columns = ("environment", "n", "seeds", *(metric.name for metric in metrics))
    tables = [PublicationTable("sft", caption, columns, tuple(rows), unique(warnings))]
    return tables if rows else []


def starts_at_zero(cell: Cell) -> bool:
    """Whether all runs were judged before the first round."""
    return all(int(rows["version"].iloc[0]) == 0 for rows in cell.rows.values())


def start_of(
    cells: Sequence[Cell], metric: Metric, options: TableOptions
) -> tuple[Entry, list[str]]:
    """A metric of version 0, with a warning of seeds whose runs disagree on it."""
    by_seed: dict[int, list[float]] = {}
    for cell in cells:
        if cell.has(metric.column):
            for seed, value in cell.starts(metric.column).items():
                by_seed.setdefault(seed, []).append(value)
    if not by_seed:
        return None, []
    odd = [seed for seed, values in by_seed.items() if max(values) - min(values) > ROUNDING]
    warnings = []
    if odd:
        runs = f"{cells[0].env}: runs of seeds {ranges_text(odd)}"
        warnings = [f"{runs} differ in {metric.column} at version 0"]
    means = {seed: sum(values) / len(values) for seed, values in by_seed.items()}
    entry, more = estimate_of(means, metric, options)
    return entry, [*warnings, *more]

"""The policies that training begins with (arXiv:2410.18252, table 1)."""

from __future__ import annotations

from analysis.comparison.selection import Cell, Selection
from analysis.tables.table import Tables, count
from analysis.written.asked import Asked
from analysis.written.basis import each_once, interval_told, left_out_told, listed
from analysis.written.entries import Entry, Written
from analysis.written.estimates import over_seeds
from analysis.written.metrics import Metric, metrics_of

# Version 0 has the same weights in every condition of a seed; digits of sums may differ.
ROUNDING = 1e-6


def sft(_: Tables, selection: Selection, asked: Asked) -> list[Written]:
    """Version 0 in each environment: a seed counts once, whatever was trained from it."""
    cells = [cell for cell in selection.cells if starts_at_zero(cell)]
    metrics = metrics_of(cells, asked.metrics)
    rows: list[tuple[Entry, ...]] = []
    warned: list[str] = []
    for env in dict.fromkeys(cell.env for cell in cells):
        own = [cell for cell in cells if cell.env == env]
        seeds = sorted({seed for cell in own for seed in cell.seeds})
        numbers: list[Entry] = []
        for metric in metrics:
            entry, told = start_of(own, metric, asked)
            numbers.append(entry)
            warned += told
        rows.append((env, len(seeds), listed(seeds), *numbers))
    runs = sum(len(cell.seeds) for cell in cells)
    caption = (
        f"SFT policies (version 0), from the evaluations of {count(runs, 'run')} of "
        f"{count(len(cells), 'condition')} trained from them; each seed counts once. Mean over "
        f"seeds with its {interval_told(asked.options, of_shares=True)}."
    )
    columns = ("environment", "n", "seeds", *(metric.name for metric in metrics))
    warnings = (*each_once(warned), *left_out_told(selection))
    return [Written("sft", caption, columns, tuple(rows), warnings)] if rows else []


def starts_at_zero(cell: Cell) -> bool:
    """Whether all runs were judged before the first round."""
    return all(int(rows["version"].iloc[0]) == 0 for rows in cell.rows.values())


def start_of(cells: list[Cell], metric: Metric, asked: Asked) -> tuple[Entry, list[str]]:
    """A metric of version 0. A seed whose runs disagree on it is told."""
    held: dict[int, list[float]] = {}
    for cell in cells:
        if cell.has(metric.column):
            for seed, value in cell.starts(metric.column).items():
                held.setdefault(seed, []).append(value)
    if not held:
        return None, []
    odd = [seed for seed, all_ in held.items() if max(all_) - min(all_) > ROUNDING]
    told = []
    if odd:
        where = cells[0].env
        told = [f"{where}: runs of seeds {listed(odd)} differ in {metric.column} at version 0"]
    means = {seed: sum(values) / len(values) for seed, values in held.items()}
    entry, more = over_seeds(means, asked.measure, asked.options, metric.digits, metric.is_share)
    return entry, [*told, *more]

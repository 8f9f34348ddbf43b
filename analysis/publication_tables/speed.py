"""Tabulate what conditions cost and when they reach a target, compared with their baselines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.comparison.cell import Cell, with_common_seeds
from rlhf_lab_analysis.comparison.selection import Selection
from rlhf_lab_analysis.publication_tables.baseline import pairs
from rlhf_lab_analysis.publication_tables.entries import (
    Entry,
    Measured,
    PublicationTable,
    table_entry,
)
from rlhf_lab_analysis.publication_tables.estimates import lacks, over_seeds
from rlhf_lab_analysis.publication_tables.metrics import Metric
from rlhf_lab_analysis.publication_tables.naming import ConditionColumns, Key, key
from rlhf_lab_analysis.publication_tables.options import TableOptions
from rlhf_lab_analysis.ranges import unique
from rlhf_lab_analysis.rounding import interval_text
from rlhf_lab_analysis.shown_runs import runs_text, seeds_of
from rlhf_lab_analysis.statistics.contrasts import speed_up
from rlhf_lab_analysis.statistics.crossings import Target, Times, times_to
from rlhf_lab_analysis.statistics.targets import time_to_target, times_ratio
from rlhf_lab_analysis.tables.table import Tables
from rlhf_lab_analysis.words import head

Row = tuple[Entry, ...]


def baselines(selection: Selection, options: TableOptions) -> tuple[dict[Key, Cell], list[str]]:
    """The baseline of each condition that has one, and warnings of those that have none."""
    found, warnings = pairs(selection, options.baseline)
    return {key(pair.cell): pair.baseline for pair in found}, list(warnings)


def costs(_: Tables, selection: Selection, options: TableOptions) -> list[PublicationTable]:
    """What each condition's runs cost up to their last evaluated version, and how many times less
    than their baseline's."""
    against, warnings = baselines(selection, options)
    cells = [c for c in selection.cells if any(c.has(axis) for axis in options.axes)]
    if not cells:
        return []
    conditions = ConditionColumns(selection.cells)
    rows: list[Row] = []
    for cell in cells:
        base = against.get(key(cell))
        entries: list[Entry] = []
        for axis in options.axes:
            spent, times_less, more = cost_of(cell, base, axis, options)
            entries += [spent, times_less]
            warnings += more
        named = conditions.title(base) if base else None
        rows.append((*conditions.entries(cell), named, len(cell.seeds), *entries))
    heads = [name for axis in options.axes for name in (head(axis), f"{head(axis)}: ratio")]
    caption = (
        "Cost up to the last evaluated version, evaluation left out: mean over seeds; ratio: of "
        "geometric means, how many times less than the baseline, in pairs where seeds are the "
        f"same ones; each with its {interval_text(options.interval)}. {runs_text(seeds_of(cells))}."
    )
    columns = (*conditions.heads, "baseline", "n", *heads)
    return [PublicationTable("costs", caption, columns, tuple(rows), unique(warnings))]


def cost_of(
    cell: Cell, baseline: Cell | None, axis: str, options: TableOptions
) -> tuple[Entry, Entry, tuple[str, ...]]:
    """Cost, ratio to the baseline's, and warnings."""
    if missing := lacks(cell, axis):
        return None, None, (missing,)
    spent = cell.at_end(axis)
    entry, warnings = over_seeds(spent, "mean", options.interval, Metric(axis).digits)
    if baseline is None or not baseline.has(axis) or min(len(spent), len(baseline.seeds)) < 2:
        return entry, None, warnings
    spent, before = (one.at_end(axis) for one in with_common_seeds(cell, baseline))
    if min(*spent.values(), *before.values()) <= 0:
        return entry, None, (*warnings, f"{cell.condition}: a cost of 0 has no ratio")
    if all(min(costs.values()) == max(costs.values()) for costs in (before, spent)):
        ratio = fmean(before.values()) / fmean(spent.values())
        return entry, Measured(ratio, digits=2), warnings
    estimate = speed_up(before, spent, options.interval)
    return entry, table_entry(estimate, 2), (*warnings, *estimate.warnings)


def times(_: Tables, selection: Selection, options: TableOptions) -> list[PublicationTable]:
    """A table for each axis: how many runs reach the target, and how soon."""
    cells = [cell for cell in selection.cells if cell.has(options.quality) and len(cell.seeds) > 1]
    if not cells:
        return []
    aims = targets(cells, options)
    against, warnings = baselines(selection, options)
    tables = (on_axis(axis, cells, aims, against, warnings, options) for axis in options.axes)
    return [table for table in tables if table.rows]


def targets(cells: Sequence[Cell], options: TableOptions) -> dict[str, float]:
    """The win-rate to reach in each environment: as given, or half-way from the mean start to the
    best condition's mean end."""
    found = {}
    for env in dict.fromkeys(cell.env for cell in cells):
        own = [cell for cell in cells if cell.env == env]
        starts = [value for cell in own for value in cell.starts(options.quality).values()]
        ends = [fmean(cell.ways_end(options.quality).values()) for cell in own]
        half = (fmean(starts) + max(ends)) / 2
        found[env] = half if options.target is None else options.target
    return found


def on_axis(
    axis: str,
    cells: Sequence[Cell],
    aims: Mapping[str, float],
    against: Mapping[Key, Cell],
    warnings: Sequence[str],
    options: TableOptions,
) -> PublicationTable:
    """Time to the target on one axis."""
    usable = [cell for cell in cells if cell.has(axis)]
    conditions = ConditionColumns(usable)
    rows: list[Row] = []
    warned = [missing for cell in cells if (missing := lacks(cell, axis))]
    for cell in usable:
        base = against.get(key(cell))
        target = Target(options.quality, aims[cell.env], axis)
        entries, more = row_of(cell, base, target, options)
        named = conditions.title(base) if base and base in usable else None
        rows.append((*conditions.entries(cell), named, *entries))
        warned += more
    origin = "as given" if options.target is not None else "half of the best condition's gain here"
    aimed = ", ".join(f"{value:.3f} in {env}" for env, value in aims.items())
    caption = (
        f"{head(axis)} until {options.quality} first is {aimed} ({origin}), evaluation left out. A "
        "run that never gets there is censored at its end: the mean counts it as the horizon up to "
        "which all runs are known; ratio: how many times sooner than the baseline. "
        f"{runs_text(seeds_of(usable)) if usable else 'No runs'}; "
        f"{interval_text(options.interval)}, of medians the percentile one."
    )
    heads = ("baseline", "reached", "horizon", "mean", "median", "ratio")
    name = f"time_to_target-{axis.removeprefix('x/')}"
    columns = (*conditions.heads, *heads)
    return PublicationTable(name, caption, columns, tuple(rows), unique((*warned, *warnings)))


def row_of(
    cell: Cell, baseline: Cell | None, target: Target, options: TableOptions
) -> tuple[Row, list[str]]:
    """How many reach it, the horizon, mean, median, and ratio to the baseline."""
    times = times_to(target, cell.curves(target.axis, target.metric))
    digits = Metric(target.axis).digits
    reached = f"{int(times.reached_S.sum())} of {len(times.seeds)}"
    if times.horizon <= 0:
        warning = f"{cell.condition}: at the target from its start"
        return (reached, None, None, None, None), [warning]
    result = time_to_target(times, options.interval)
    ratio, more = ratio_to(cell, times, baseline, target, options)
    numbers = (table_entry(result.restricted_mean, digits), table_entry(result.median, digits))
    horizon = Measured(result.horizon, digits=digits)
    return (reached, horizon, *numbers, ratio), [*result.warnings, *more]


def ratio_to(
    cell: Cell, times: Times, baseline: Cell | None, target: Target, options: TableOptions
) -> tuple[Entry, tuple[str, ...]]:
    """How many times sooner than the baseline, where both can be compared."""
    if baseline is None or len(baseline.seeds) < 2 or not baseline.has(target.axis):
        return None, ()
    before = times_to(target, baseline.curves(target.axis, target.metric))
    try:
        ratio = times_ratio(before, times, options.interval)
    except UserError as error:
        return None, (f"{cell.condition}: {error}",)
    return table_entry(ratio, 2), ratio.warnings

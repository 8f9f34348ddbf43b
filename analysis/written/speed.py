"""What conditions cost, and how soon they get to a target, beside their baselines."""

from __future__ import annotations

from collections.abc import Mapping

from analysis.comparison.selection import Cell, Selection
from analysis.statistics.contrasts import speed_up
from analysis.statistics.crossings import Target, Times, times_to
from analysis.statistics.targets import time_to_target, times_ratio
from analysis.tables.table import Tables
from analysis.written.asked import Asked
from analysis.written.baseline import Pair, pairs
from analysis.written.basis import each_once, interval_told, left_out_told, runs_told
from analysis.written.entries import Entry, Measured, Written, measured
from analysis.written.estimates import lacks, over_seeds
from analysis.written.naming import Key, key, place_columns, place_of, titles
from rlhf_lab.types.errors import UserError

# Name of an axis in tables, and digits after the point.
AXES: Mapping[str, tuple[str, int]] = {
    "x/wall_seconds": ("wall-clock, s", 1),
    "x/device_hours": ("device-hours", 4),
    "x/completions": ("completions", 0),
    "x/generated_tokens": ("generated tokens", 0),
    "x/trained_tokens": ("trained tokens", 0),
    "x/flops": ("FLOPs", 0),
    "x/updates": ("updates", 0),
    "x/rounds": ("rounds", 0),
}


def costs(_: Tables, selection: Selection, asked: Asked) -> list[Written]:
    """What each condition's runs cost up to their last evaluated version, and how many times less
    than their baseline's."""
    found, told = pairs(selection, asked.baseline)
    against = {key(pair.cell): pair.baseline for pair in found}
    cells = [c for c in selection.cells if any(c.has(axis) for axis in asked.axes)]
    if not cells:
        return []
    names, places = titles(selection.cells), place_columns(cells)
    rows, warned = [], list(told)
    for cell in cells:
        entries: list[Entry] = []
        for axis in asked.axes:
            spent, times_less, said = cost_of(cell, against.get(key(cell)), axis, asked)
            entries += [spent, times_less]
            warned += said
        base = against.get(key(cell))
        named = names[key(base)] if base else None
        rows.append((*place_of(cell, places), names[key(cell)], named, len(cell.seeds), *entries))
    heads = [
        name for axis in asked.axes for name in (axis_of(axis)[0], f"{axis_of(axis)[0]}: ratio")
    ]
    caption = (
        "Cost up to the last evaluated version, evaluation left out: mean over seeds; ratio: of "
        "geometric means, how many times less than the baseline, in pairs where seeds are the "
        f"same ones; each with its {interval_told(asked.options)}. {runs_told(cells)}."
    )
    columns = (*places, "condition", "baseline", "n", *heads)
    warnings = (*each_once(warned), *left_out_told(selection))
    return [Written("costs", caption, columns, tuple(rows), warnings)]


def axis_of(axis: str) -> tuple[str, int]:
    return AXES.get(axis, (axis, 3))


def cost_of(
    cell: Cell, baseline: Cell | None, axis: str, asked: Asked
) -> tuple[Entry, Entry, tuple[str, ...]]:
    """Cost, ratio to the baseline's, and warnings."""
    if missing := lacks(cell, axis):
        return None, None, (missing,)
    spent = cell.at_end(axis)
    entry, told = over_seeds(spent, "mean", asked.options, axis_of(axis)[1])
    if baseline is None or not baseline.has(axis) or min(len(spent), len(baseline.seeds)) < 2:
        return entry, None, told
    before = baseline.at_end(axis)
    if min(*spent.values(), *before.values()) <= 0:
        return entry, None, (*told, f"{cell.condition}: a cost of 0 has no ratio")
    if all(min(costs.values()) == max(costs.values()) for costs in (before, spent)):
        return entry, Measured(mean(before) / mean(spent), digits=2), told
    ratio = speed_up(before, spent, asked.options)
    return entry, measured(ratio, 2), (*told, *ratio.warnings)


def times(_: Tables, selection: Selection, asked: Asked) -> list[Written]:
    """A table for each axis: how many runs reach the target, and how soon."""
    cells = [cell for cell in selection.cells if cell.has(asked.quality) and len(cell.seeds) > 1]
    if not cells:
        return []
    aims = targets(cells, asked)
    found, told = pairs(selection, asked.baseline)
    against = {key(pair.cell): pair for pair in found}
    made = [on_axis(axis, cells, aims, against, asked) for axis in asked.axes]
    rest = (*told, *left_out_told(selection))
    return [
        Written(one.name, one.caption, one.columns, one.rows, each_once((*one.warnings, *rest)))
        for one in made
        if one.rows
    ]


def targets(cells: list[Cell], asked: Asked) -> dict[str, float]:
    """The win-rate to reach in each environment: as asked, or half-way from the mean start to the
    best condition's mean end."""
    found = {}
    for env in dict.fromkeys(cell.env for cell in cells):
        own = [cell for cell in cells if cell.env == env]
        starts = [value for cell in own for value in cell.starts(asked.quality).values()]
        ends = [mean(cell.scores(asked.quality)) for cell in own]
        half = (sum(starts) / len(starts) + max(ends)) / 2
        found[env] = half if asked.target is None else asked.target
    return found


def mean(values: Mapping[int, float]) -> float:
    return sum(values.values()) / len(values)


def on_axis(
    axis: str,
    cells: list[Cell],
    aims: Mapping[str, float],
    against: Mapping[Key, Pair],
    asked: Asked,
) -> Written:
    """Time to the target on one axis."""
    usable = [cell for cell in cells if cell.has(axis)]
    told_of = runs_told(usable) if usable else "No runs"
    names, places = titles(usable), place_columns(usable)
    rows, warned = [], [missing for cell in cells if (missing := lacks(cell, axis))]
    for cell in usable:
        pair = against.get(key(cell))
        entries, told = row_of(cell, pair, Target(asked.quality, aims[cell.env], axis), asked)
        based = names.get(key(pair.baseline)) if pair else None
        rows.append((*place_of(cell, places), names[key(cell)], based, *entries))
        warned += told
    name, _ = axis_of(axis)
    how = "as asked" if asked.target is not None else "half of the best condition's gain here"
    aimed = ", ".join(f"{value:.3f} in {env}" for env, value in aims.items())
    caption = (
        f"{name} until {asked.quality} first is {aimed} ({how}), evaluation left out. A run that "
        "never gets there is censored at its end: the mean counts it as the horizon up to which "
        f"all runs are known; ratio: how many times sooner than the baseline. {told_of}; "
        f"{interval_told(asked.options)}, of medians the percentile one."
    )
    columns = (*places, "condition", "baseline", "reached", "horizon", "mean", "median", "ratio")
    kept = f"time_to_target-{axis.removeprefix('x/')}"
    return Written(kept, caption, columns, tuple(rows), each_once(warned))


def row_of(
    cell: Cell, pair: Pair | None, target: Target, asked: Asked
) -> tuple[tuple[Entry, ...], list[str]]:
    """How many reach it, the horizon, mean, median, and ratio to the baseline."""
    held = times_to(target, cell.curves(target.axis, target.metric))
    digits = axis_of(target.axis)[1]
    reached = f"{int(held.reached_S.sum())} of {len(held.seeds)}"
    if held.horizon <= 0:
        return (reached, None, None, None, None), [
            f"{cell.condition}: at the target from its start"
        ]
    made = time_to_target(held, asked.options)
    ratio, told = ratio_to(held, pair, target, asked)
    numbers = (measured(made.restricted_mean, digits), measured(made.median, digits))
    horizon = Measured(made.horizon, digits=digits)
    return (reached, horizon, *numbers, ratio), [*made.warnings, *told]


def ratio_to(
    held: Times, pair: Pair | None, target: Target, asked: Asked
) -> tuple[Entry, tuple[str, ...]]:
    """How many times sooner than the baseline, where both can be compared."""
    if pair is None or len(pair.baseline.seeds) < 2 or not pair.baseline.has(target.axis):
        return None, ()
    before = times_to(target, pair.baseline.curves(target.axis, target.metric))
    try:
        made = times_ratio(before, held, asked.options)
    except UserError as error:
        return None, (f"{pair.cell.condition}: {error}",)
    return measured(made, 2), made.warnings

"""Bands over a grid: performance profiles, and the best win-rate at each KL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes

from analysis.figures.blocks import look_of, outer, seeds_text, to_legend
from analysis.figures.courses import options_for, options_for_share, values_at
from analysis.figures.families import Family
from analysis.figures.looks import GREY
from analysis.figures.names import KL, WIN_RATE, label
from analysis.figures.panels import begin, in_rows
from analysis.figures.pools import baseline, keys_of, names_of
from analysis.figures.sheet import Drawn, Sheet
from analysis.selection import Cell
from analysis.statistics.aggregates import aggregate_curves
from analysis.statistics.curves import RunCurve, common_grid, on_grid
from analysis.statistics.frontiers import frontier_distance, frontier_of
from analysis.statistics.profiles import performance_profiles
from analysis.statistics.results import Band

TAUS = 41


def band_of(
    sheet: Sheet, axes: Axes, cell: Cell, keys: Sequence[str], shown: tuple[Band, str, str, str]
) -> None:
    """Draw a band over its grid and keep it. shown: the band, the condition, names of x and y."""
    band, name, x_name, y_name = shown
    style = look_of(cell, keys)
    axes.plot(band.grid, band.point, color=style.colour, linestyle=style.line)
    axes.fill_between(band.grid, band.low, band.high, color=style.colour, alpha=0.15, lw=0)
    every = max(1, len(band.grid) // 5)
    axes.plot(
        band.grid[::every], band.point[::every], color=style.colour, marker=style.marker, ls="none"
    )
    sheet.runs(cell, band.warnings)
    to_legend(sheet, cell, keys[:2])
    options = band.basis.options
    for x, *y in zip(band.grid, band.point, band.low, band.high, strict=True):
        sheet.framing.see(axes, "y", y_name, (y[0], y[1], y[2]))
        sheet.add(
            cell, condition=name, part=band.name, x_name=x_name, x=x, y_name=y_name, y=y[0],
            low=y[1], high=y[2], n=min(band.basis.seeds), seeds=seeds_text(cell.seeds),
            interval=f"{100 * options.level:g}% {options.method}",
        )  # fmt: skip


def profile(families: Sequence[Family]) -> Drawn:
    """The share of runs that end above each win-rate, by condition."""
    sheet, axes = begin("Share of runs whose last gold win-rate is above a value", len(families), 1)
    sheet.tells_last = False
    for family, (panel,) in in_rows(sheet, families, axes, ("algo", "model")):
        scores = {c.condition: [*c.scores(WIN_RATE).values()] for c in family.cells}
        everything = [value for values in scores.values() for value in values]
        edge = 0.05 * (max(everything) - min(everything) or 1.0)
        taus = np.linspace(min(everything) - edge, max(everything) + edge, TAUS).tolist()
        for cell, name in zip(family.cells, names_of(family), strict=True):
            given = {name: {"": scores[cell.condition]}}
            made = performance_profiles(given, taus, options_for_share())[name]
            band_of(sheet, panel, cell, keys_of(family), (made, name, WIN_RATE, "share of runs"))
        panel.set_ylabel("share of runs above")
        outer(panel, WIN_RATE)
    return sheet.drawn()


def frontier(families: Sequence[Family]) -> Drawn:
    """The best win-rate up to each KL, and how far from the freshest condition at equal KL."""
    sheet, axes = begin("Best gold win-rate at each KL or below it", len(families), 2)
    sheet.tells_last = False
    for family, row in in_rows(sheet, families, axes, ("algo", "model")):
        curves = {cell.condition: frontiers(cell) for cell in family.cells}
        names = dict(zip(curves, names_of(family), strict=True))
        first = baseline(family)
        for cell in family.cells:
            one_frontier(sheet, row[0], cell, names[cell.condition], family, curves)
            if cell is not first:
                distance(sheet, row[1], (cell, first), names, family, curves)
        row[1].axhline(0, color=GREY, lw=0.7)
        row[0].set_ylabel(label(WIN_RATE))
        row[1].set_ylabel(f"less that of {names[first.condition]}")
        for panel in row:
            outer(panel, KL)
    return sheet.drawn()


def frontiers(cell: Cell) -> dict[int, RunCurve]:
    """The frontier of each run."""
    return {
        seed: frontier_of(f"seed {seed}", *np.array(sorted(held.values())).T)
        for seed, held in values_at(cell, (KL, WIN_RATE)).items()
    }


def overlap(curves: Sequence[RunCurve]) -> bool:
    """Whether some KL was visited by all runs."""
    return max(curve.begin for curve in curves) < min(curve.end for curve in curves)


def one_frontier(
    sheet: Sheet,
    axes: Axes,
    cell: Cell,
    name: str,
    family: Family,
    curves: Mapping[str, Mapping[int, RunCurve]],
) -> None:
    """The mean frontier of a condition over the KL that all its runs visited."""
    own = [*curves[cell.condition].values()]
    if not overlap(own):
        sheet.warn(f"{name}: no KL is common to its runs, so no frontier is drawn")
        return
    grid = common_grid(own).tolist()
    given = {name: {"": on_grid(own, grid)}}
    band = aggregate_curves(given, grid, options_for(len(own)), "mean")[name]
    band_of(sheet, axes, cell, keys_of(family), (band, name, KL, WIN_RATE))


def distance(
    sheet: Sheet,
    axes: Axes,
    pair: tuple[Cell, Cell],
    names: Mapping[str, str],
    family: Family,
    curves: Mapping[str, Mapping[int, RunCurve]],
) -> None:
    """How far a condition's frontier is above the first one's at equal KL."""
    cell, first = pair
    ours, others = curves[cell.condition], curves[first.condition]
    name = names[cell.condition]
    if not overlap([*ours.values(), *others.values()]):
        sheet.warn(f"{name}: no KL is common with {names[first.condition]}, so no distance")
        return
    made = frontier_distance(ours, others, options_for(min(len(ours), len(others))))
    band_of(sheet, axes, cell, keys_of(family), (made.band, name, KL, "distance at equal KL"))
    where = f"{sheet.group}, {name}" if sheet.group else name
    sheet.notes.append(
        f"{where}: {made.mean.text()} from {names[first.condition]} over KL {made.low:.2g} to "
        f"{made.high:.2g}, {made.share:.0%} of what was visited."
    )

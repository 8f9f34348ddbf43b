"""Bands over a grid: performance profiles."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from analysis.comparison.selection import Cell
from analysis.figures.blocks import look_of, outer, seeds_text, to_legend
from analysis.figures.courses import options_for_counts
from analysis.figures.families import Family
from analysis.figures.names import WIN_RATE
from analysis.figures.panels import begin, in_rows
from analysis.figures.pools import keys_of, names_of
from analysis.figures.sheet import Drawn, Sheet
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
            interval=options.text,
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
            made = performance_profiles(given, taus, options_for_counts())[name]
            band_of(sheet, panel, cell, keys_of(family), (made, name, WIN_RATE, "share of runs"))
        panel.set_ylabel("share of runs above")
        outer(panel, WIN_RATE)
    return sheet.drawn()

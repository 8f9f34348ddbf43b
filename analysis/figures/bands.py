"""Bands over a grid: performance profiles."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from rlhf_lab_analysis.comparison.families import Family
from rlhf_lab_analysis.comparison.selection import Cell
from rlhf_lab_analysis.figures.declaration import figure
from rlhf_lab_analysis.figures.figure_builder import FigureBuilder
from rlhf_lab_analysis.figures.grouping import by_algo, keys_of, names_of
from rlhf_lab_analysis.figures.mean_curves import COUNTS
from rlhf_lab_analysis.figures.panels import begin, in_rows
from rlhf_lab_analysis.figures.primitives import add_to_legend, outer, seeds_column, style_of
from rlhf_lab_analysis.figures.requirement import any_two
from rlhf_lab_analysis.statistics.profiles import performance_profiles
from rlhf_lab_analysis.statistics.results import Band
from rlhf_lab_analysis.words import WIN_RATE

TAUS = 41
SHARE = "share of runs"


@figure(
    "profile",
    "share of runs that end above each win-rate",
    "Share of runs whose last gold win-rate is above a value",
    any_two(WIN_RATE, grouping=by_algo),
)
def profile(families: Sequence[Family]) -> FigureBuilder:
    builder, axes = begin(len(families), 1)
    builder.lists_last = False
    for family, (panel,) in in_rows(builder, families, axes, ("algo", "model")):
        scores = {c.condition: [*c.scores(WIN_RATE).values()] for c in family.cells}
        everything = [value for values in scores.values() for value in values]
        edge = 0.05 * (max(everything) - min(everything) or 1.0)
        taus = np.linspace(min(everything) - edge, max(everything) + edge, TAUS).tolist()
        for cell, name in zip(family.cells, names_of(family), strict=True):
            by_name = {name: {"": scores[cell.condition]}}
            band = performance_profiles(by_name, taus, COUNTS)[name]
            draw_band(builder, panel, cell, keys_of(family), name, band)
        panel.set_ylabel("share of runs above")
        outer(panel, WIN_RATE)
    return builder


def draw_band(
    builder: FigureBuilder, axes: Axes, cell: Cell, keys: Sequence[str], name: str, band: Band
) -> None:
    """Draw a band over its grid and add it to the data."""
    style = style_of(cell, keys)
    axes.plot(band.grid, band.point, color=style.colour, linestyle=style.line)
    axes.fill_between(band.grid, band.low, band.high, color=style.colour, alpha=0.15, lw=0)
    every = slice(None, None, max(1, len(band.grid) // 5))
    axes.plot(
        band.grid[every], band.point[every], color=style.colour, marker=style.marker, ls="none"
    )
    builder.count_runs(cell, band.warnings)
    add_to_legend(builder, cell, keys)
    for x, y, low, high in zip(band.grid, band.point, band.low, band.high, strict=True):
        builder.limits.include(axes, "y", SHARE, (y, low, high))
        builder.add(
            cell, condition=name, part=band.name, x_name=WIN_RATE, x=x, y_name=SHARE, y=y,
            low=low, high=high, n=min(band.basis.seeds), seeds=seeds_column(cell.seeds),
            interval=band.basis.options.text,
        )  # fmt: skip

"""Draw rows of intervals: a name on the left, an interval as a bar, its estimate as a mark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes

from rlhf_lab_analysis.comparison.cell import Cell
from rlhf_lab_analysis.figures.figure_builder import FigureBuilder
from rlhf_lab_analysis.figures.mean_curves import end_curve
from rlhf_lab_analysis.figures.primitives import name_of, record_version, seeds_column, style_of
from rlhf_lab_analysis.figures.series_style import SeriesStyle
from rlhf_lab_analysis.figures.style import GREY, plain
from rlhf_lab_analysis.ranges import span_text
from rlhf_lab_analysis.statistics.results import Estimate
from rlhf_lab_analysis.words import in_words, short_label

Rows = Sequence[tuple[str, Estimate, Cell]]


def level_rows(
    builder: FigureBuilder, axes: Axes, cells: Sequence[Cell], metric: str, keys: Sequence[str]
) -> None:
    """The metric at the last version, a row for each condition; the first one on top."""
    names = [name_of(cell, keys) for cell in cells]
    for row, (cell, name) in enumerate(zip(cells, names, strict=True)):
        curve, style = end_curve(cell, "version", metric), style_of(cell, keys)
        y, low, high = curve.point(-1)
        interval_bar(axes, (low, high), row, style.colour)
        axes.plot([y], [row], color=style.colour, marker=style.marker, mec="white", mew=0.4)
        builder.count_runs(cell, curve.warnings)
        record_version(builder, axes, "x", cell, curve, -1, condition=name, y_name=metric)
    row_names(axes, [f"{n} (n={len(c.seeds)})" for n, c in zip(names, cells, strict=True)])
    axes.set_xlabel(short_label(metric))


def interval_rows(
    builder: FigureBuilder,
    axes: Axes,
    rows: Rows,
    keys: Sequence[str],
    metric: str,
    first: Cell | None = None,
) -> None:
    """Draw rows of intervals in one panel, and add them to the data. first: the baseline."""
    names = [f"{name} (n={span_text(found.basis.seeds)})" for name, found, _ in rows]
    bars(axes, names, [found for _, found, _ in rows], [style_of(cell, keys) for *_, cell in rows])
    for name, found, cell in rows:
        # In pairs an estimate stands on the seeds that both conditions have.
        is_paired = first is not None and found.name.startswith("paired")
        own = [seed for seed in cell.seeds if not is_paired or (first and seed in first.seeds)]
        record_estimate(
            builder, axes, cell, found, own, condition=name, part=found.name, y_name=metric
        )


def record_estimate(
    builder: FigureBuilder,
    axes: Axes,
    cell: Cell,
    estimate: Estimate,
    seeds: Sequence[int],
    **shown: Any,
) -> None:
    """Add an estimate to the data, which is drawn along x."""
    ends = (estimate.point, estimate.low, estimate.high)
    builder.count_runs(cell, estimate.warnings)
    builder.limits.include(axes, "x", shown["y_name"], ends, is_row=True)
    builder.add(
        cell, **shown, y=ends[0], low=ends[1], high=ends[2], n=len(seeds),
        seeds=seeds_column(seeds), interval=estimate.basis.options.text,
    )  # fmt: skip


def bars(
    axes: Axes, names: Sequence[str], estimates: Sequence[Estimate], styles: Sequence[SeriesStyle]
) -> None:
    """A row for each name: interval as a bar, estimate as a tick in it; the first one on top."""
    for row, (estimate, style) in enumerate(zip(estimates, styles, strict=True)):
        interval_bar(axes, (estimate.low, estimate.high), row, style.colour)
        axes.plot([estimate.point], [row], color=style.colour, marker="|", ms=7, mew=1.4)
    row_names(axes, names)


def interval_bar(axes: Axes, ends: tuple[float, float], row: float, colour: str) -> None:
    """An interval as a bar that ends where the interval does: a line's own caps lie beyond it."""
    axes.plot(ends, [row] * 2, color=colour, lw=4, alpha=0.35, solid_capstyle="butt")


def row_names(axes: Axes, names: Sequence[str]) -> None:
    """Names of rows down the left side."""
    axes.set_yticks(range(len(names)), [in_words(plain(name)) for name in names])
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.grid(axis="x", color=GREY, alpha=0.2, lw=0.5)

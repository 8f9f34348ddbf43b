"""Draw the elements of panels: curves with bands, paths, and points with crosses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.lines import Line2D
from numpy.typing import ArrayLike

from rlhf_lab_analysis.comparison.cell import Cell
from rlhf_lab_analysis.comparison.families import order, value_of
from rlhf_lab_analysis.figures.figure_builder import FigureBuilder
from rlhf_lab_analysis.figures.mean_curves import MeanCurve, end_curve, mean_curve
from rlhf_lab_analysis.figures.series_style import SeriesStyle, combine_styles, value_style
from rlhf_lab_analysis.figures.style import GREY
from rlhf_lab_analysis.words import KL, label, setting_text


def style_of(cell: Cell, keys: Sequence[str]) -> SeriesStyle:
    """Colour and line by the first key, the marker by the second, if there is one."""
    styles = [value_style(key, value_of(cell, key)) for key in keys[:2]]
    return styles[0] if len(styles) == 1 else combine_styles(*styles)


def name_of(cell: Cell, keys: Sequence[str]) -> str:
    """A condition as its legend names it: its values of the keys in words."""
    return " ".join(filter(None, (setting_text(key, value_of(cell, key)) for key in keys)))


def add_to_legend(builder: FigureBuilder, cell: Cell, keys: Sequence[str]) -> None:
    """Colour and line for the first key's value, a marker for the second's."""
    for index, key in enumerate(keys[:2]):
        style = value_style(key, value_of(cell, key))
        marker = style.marker if index or len(keys) == 1 else ""
        line: Any = "none" if index else style.line
        colour = GREY if index else style.colour
        sample = Line2D([], [], color=colour, linestyle=line, marker=marker)
        rank = (index, order(value_of(cell, key)))
        builder.add_to_legend(name_of(cell, [key]), sample, len(cell.seeds), rank)


def outer(panel: Axes, x: str) -> None:
    """Name the x-axis where no panel below does."""
    spec = panel.get_subplotspec()
    if spec is None or spec.is_last_row():
        panel.set_xlabel(label(x))


def band_curve(
    builder: FigureBuilder, axes: Axes, cell: Cell, keys: Sequence[str], xy: tuple[str, str]
) -> None:
    """Means over seeds at each version, with a band where there is more than one seed."""
    curve, style = mean_curve(cell, *xy), style_of(cell, keys)
    x, (y, low, high) = curve.x[0], curve.y
    axes.plot(x, y, color=style.colour, marker=style.marker, linestyle=style.line)
    if len(curve.seeds) > 1:
        band(axes, x, (low, high), style)
    record(builder, axes, cell, keys, xy, curve)


def band(axes: Axes, x: ArrayLike, ends: tuple[ArrayLike, ArrayLike], style: SeriesStyle) -> None:
    """A band with thin edges, which part it from others that it lies on."""
    fill, edge = (to_rgba(style.colour, alpha) for alpha in (0.13, 0.45))
    axes.fill_between(x, *ends, facecolor=fill, edgecolor=edge, linewidth=0.4)


def path(
    builder: FigureBuilder, axes: Axes, cell: Cell, keys: Sequence[str], xy: tuple[str, str]
) -> None:
    """The path over two metrics, version by version, with a cross of intervals at the last."""
    curve, style = mean_curve(cell, *xy), style_of(cell, keys)
    line: Any = {"linestyle": style.line, "lw": 0.8}
    axes.plot(curve.x[0], curve.y[0], color=style.colour, marker=style.marker, **line)
    cross(axes, curve, style)
    record(builder, axes, cell, keys, xy, curve)


def end_point(
    builder: FigureBuilder, axes: Axes, cell: Cell, keys: Sequence[str], xy: tuple[str, str]
) -> None:
    """The last version alone, with a cross of intervals."""
    curve, style = end_curve(cell, *xy), style_of(cell, keys)
    axes.plot(curve.x[0][-1], curve.y[0][-1], color=style.colour, marker=style.marker, ls="none")
    cross(axes, curve, style)
    record(builder, axes, cell, keys, xy, curve, (-1,))


def cross(axes: Axes, curve: MeanCurve, style: SeriesStyle) -> None:
    """The intervals of the last version along both axes; none of one seed."""
    if len(curve.seeds) > 1:
        x, y = ([float(values[-1]) for values in ends] for ends in (curve.x, curve.y))
        line: Any = {"color": style.colour, "lw": 0.7, "alpha": 0.7}
        axes.plot(x[1:], [y[0]] * 2, **line)
        axes.plot([x[0]] * 2, y[1:], **line)


def record(
    builder: FigureBuilder,
    axes: Axes,
    cell: Cell,
    keys: Sequence[str],
    xy: tuple[str, str],
    curve: MeanCurve,
    versions: Sequence[int] | None = None,
) -> None:
    """Add a curve to the figure's data and legend. versions: indices of those that are drawn."""
    name = name_of(cell, keys)
    add_to_legend(builder, cell, keys)
    builder.count_runs(cell, curve.warnings)
    for index in range(len(curve.versions)) if versions is None else versions:
        x, x_low, x_high = (float(values[index]) for values in curve.x)
        # Intervals along x are drawn where x was measured, and at the last version.
        is_crossed = xy[0] == KL and index in (-1, len(curve.versions) - 1)
        builder.limits.include(axes, "x", xy[0], (x, x_low, x_high) if is_crossed else (x, x, x))
        record_version(
            builder, axes, "y", cell, curve, index,
            condition=name, x_name=xy[0], x=x, x_low=x_low, x_high=x_high, y_name=xy[1],
        )  # fmt: skip


def record_version(
    builder: FigureBuilder,
    axes: Axes,
    which: Any,
    cell: Cell,
    curve: MeanCurve,
    index: int,
    **shown: Any,
) -> None:
    """Add one version of a curve to the data. which: the axis that y is drawn along, x in rows.
    shown: the condition, x, and the names of x and y."""
    y, low, high = curve.point(index)
    span = (y, low, high)
    builder.limits.include(axes, which, shown["y_name"], span, is_row=which == "x")
    builder.add(
        cell, **shown, y=y, low=low, high=high, version=curve.versions[index],
        n=len(curve.seeds), seeds=seeds_column(curve.seeds), interval=curve.interval,
    )  # fmt: skip


def seeds_column(seeds: Sequence[int]) -> str:
    return " ".join(map(str, seeds))

"""Draw where runs collapse over staleness and learning rate, and what each setting reaches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patheffects import AbstractPathEffect, withStroke

from rlhf_lab_analysis.comparison.cell import Cell
from rlhf_lab_analysis.comparison.families import Family, value_of
from rlhf_lab_analysis.comparison.stable_rates import REWARD, Place, times_of, trials_of
from rlhf_lab_analysis.figures.declaration import figure
from rlhf_lab_analysis.figures.figure_builder import FigureBuilder
from rlhf_lab_analysis.figures.mean_curves import end_curve, options_for, values_at
from rlhf_lab_analysis.figures.panels import MANY, in_rows
from rlhf_lab_analysis.figures.primitives import (
    add_to_legend,
    name_of,
    outer,
    record_version,
    seeds_column,
    style_of,
)
from rlhf_lab_analysis.figures.requirement import Requirement
from rlhf_lab_analysis.figures.style import ROW, SMALL_ROW, page, ticks
from rlhf_lab_analysis.rounding import number_text
from rlhf_lab_analysis.statistics.boundary import (
    Boundary,
    boundary,
    reason_against,
    thresholds_of,
)
from rlhf_lab_analysis.statistics.collapse import DEFAULT
from rlhf_lab_analysis.statistics.contrasts import difference, in_pairs
from rlhf_lab_analysis.statistics.crossings import Times
from rlhf_lab_analysis.statistics.curves import RunCurve, areas
from rlhf_lab_analysis.statistics.results import FEW_REPETITIONS, Options
from rlhf_lab_analysis.statistics.targets import time_to_target
from rlhf_lab_analysis.words import UPDATES, WIN_RATE, label

S, RATE = "max_staleness", "optim.lr"
AVERAGE = "gold/win_rate averaged over updates"
COLLAPSED = "share of runs that collapse"
# So that marks can be read on any colour of the map.
OUTLINE: list[AbstractPathEffect] = [withStroke(linewidth=2, foreground="white")]


@figure(
    "staleness_rate",
    "win-rate and collapsed runs over staleness and learning rate, with the fitted boundary",
    "Win-rate at the end over staleness and learning rate, with the fitted boundary of collapse; "
    "beside it the same over the rate, and averaged over updates",
    Requirement((S, RATE), (WIN_RATE, UPDATES), recorded=(REWARD, UPDATES)),
    ("staleness_rate",),
)
def staleness_rate(families: Sequence[Family]) -> FigureBuilder:
    height = ROW if len(families) < MANY else SMALL_ROW
    figure_, axes = page(len(families), 3, height=height, sharex="col")
    builder = FigureBuilder(figure_, lists_last=False)
    for family, row in in_rows(builder, families, axes.tolist(), ("algo", "model")):
        cells = {(float(value_of(c, S)), float(value_of(c, RATE))): c for c in family.cells}
        fallen = {place: times_of(cell) for place, cell in cells.items()}
        heat_map(builder, row[0], cells, fallen)
        draw_boundary(builder, row[0], cells, fallen)
        for panel, of_end in zip(row[1:], (True, False), strict=True):
            for staleness in sorted({staleness for staleness, _ in cells}):
                own = [cells[place] for place in sorted(cells) if place[0] == staleness]
                over_rate(builder, panel, own, of_end)
            panel.set_xscale("log")
            rates = sorted({rate for _, rate in cells})
            ticks(panel, sorted({rates[0], rates[len(rates) // 2], rates[-1]}))
            panel.set_ylabel(label(WIN_RATE) if of_end else "mean over updates")
            outer(panel, RATE)
    builder.notes.insert(
        0,
        f"Collapsed: the mean reward of {DEFAULT.window} rounds falls below its best by more than "
        f"{DEFAULT.share:.0%} of what it had gained and {DEFAULT.noise:g} of its deviations, and "
        "does not recover. In the map: win-rate at the end as colour, collapsed runs of all as a "
        "number; lines: the largest stable rate at each S with the ends of its 95% interval.",
    )
    return builder


def heat_map(
    builder: FigureBuilder,
    axes: Axes,
    cells: Mapping[Place, Cell],
    fallen: Mapping[Place, Times | None],
) -> None:
    """Win-rate at the end as colour, and collapsed runs of all as a number, at each S and rate."""
    columns, rows = (sorted({place[axis] for place in cells}) for axis in (0, 1))
    colours, told = np.full((len(rows), len(columns)), np.nan), list[str]()
    for (staleness, rate), cell in cells.items():
        at = columns.index(staleness), rows.index(rate)
        colours[at[1], at[0]] = end_curve(cell, "version", WIN_RATE).point(-1)[0]
        if (times := fallen[staleness, rate]) is None:
            builder.warn(f"{cell.condition}: fewer rounds than {DEFAULT.window}, so no collapse")
            continue
        count, runs = int(times.reached_S.sum()), len(times.seeds)
        text = axes.text(*at, f"{count}/{runs}", ha="center", va="center", fontsize=5.5)
        text.set_path_effects(OUTLINE)
        builder.count_runs(cell)
        builder.add(
            cell, condition=name_of(cell, (S, RATE)), part="collapsed", x_name=S, x=staleness,
            y_name=COLLAPSED, y=count / runs, n=runs, seeds=seeds_column(times.seeds),
        )  # fmt: skip
        told += time_text(name_of(cell, (S, RATE)), times)
    if told:
        builder.notes.append(f"Collapsed runs, and mean updates until then: {'; '.join(told)}.")
    # Cells of equal size: neither S = 0 nor doublings have a common scale.
    image = axes.imshow(colours, origin="lower", aspect="auto", cmap="viridis")
    axes.figure.colorbar(image, ax=axes, pad=0.02).ax.tick_params(labelsize=5.5)
    axes.set_xticks(range(len(columns)), [f"{value:g}" for value in columns])
    axes.set_yticks(range(len(rows)), [f"{value:g}" for value in rows])
    axes.set_ylabel(label(RATE))
    outer(axes, S)


def time_text(name: str, times: Times) -> list[str]:
    """Collapsed runs of a condition with their mean time by Kaplan and Meier; none without."""
    count, runs = int(times.reached_S.sum()), len(times.seeds)
    if count == 0 or runs == 1:
        return []
    found = time_to_target(times, Options(repetitions=FEW_REPETITIONS))
    until = f"{number_text(found.restricted_mean.point)} up to {number_text(found.horizon)}"
    return [f"{name} {count} of {runs}, {until}"]


def draw_boundary(
    builder: FigureBuilder,
    axes: Axes,
    cells: Mapping[Place, Cell],
    fallen: Mapping[Place, Times | None],
) -> None:
    """The largest stable rate of each S with its interval; a note where runs do not show one."""
    trials = trials_of(fallen)
    where = f"{builder.group}: " if builder.group else ""
    if reason := reason_against(thresholds_of(trials)[0]):
        builder.notes.append(f"{where}no boundary is fitted: {reason}.")
        return
    found = boundary(trials)
    builder.warn(*found.warnings)
    builder.notes.append(f"{where}{boundary_text(found)}")
    rows = np.log(sorted({rate for _, rate in cells}))
    ends = []
    for staleness, at in found.rates.items():
        cell = next(cells[place] for place in sorted(cells) if place[0] == staleness)
        builder.add(
            cell, condition=name_of(cell, (S,)), part="boundary", x_name=S, x=staleness,
            y_name=RATE, y=at.point, low=at.low, high=at.high, n=len(cell.seeds),
            seeds=seeds_column(cell.seeds), interval="95% profile likelihood",
        )  # fmt: skip
        inside = np.clip([at.point, at.low, at.high], 1e-300, 1e300)
        ends.append(np.interp(np.log(inside), rows, np.arange(len(rows)), -0.5, len(rows) - 0.5))
    line, low, high = np.array(ends).T
    x = np.arange(len(line))
    axes.plot(x, line, color="black", lw=1.4, path_effects=OUTLINE)
    for end in (low, high):
        axes.plot(x, end, color="black", lw=0.7, ls="--", path_effects=OUTLINE)
    axes.set_ylim(-0.5, len(rows) - 0.5)


def boundary_text(found: Boundary) -> str:
    """The slope as a sentence."""
    slope = found.slope
    return (
        f"slope of log rate on log(S + 1) {number_text(slope.point)} [{number_text(slope.low)}, "
        f"{number_text(slope.high)}] (-1 by the law, 0 where staleness does not bind)."
    )


def over_rate(builder: FigureBuilder, axes: Axes, cells: Sequence[Cell], of_end: bool) -> None:
    """The win-rate of one S over the rates, at the end or averaged over updates."""
    style, points = style_of(cells[0], (S,)), []
    for cell in cells:
        rate = float(value_of(cell, RATE))
        shown: dict[str, Any] = {
            "condition": name_of(cell, (S, RATE)), "part": "end" if of_end else "average",
            "x_name": RATE, "x": rate,
        }  # fmt: skip
        if of_end:
            curve = end_curve(cell, "version", WIN_RATE)
            record_version(builder, axes, "y", cell, curve, -1, **shown, y_name=WIN_RATE)
            ends = curve.point(-1)
            builder.count_runs(cell, curve.warnings)
        else:
            ends = record_average(builder, axes, cell, shown)
        add_to_legend(builder, cell, (S,))
        points.append((rate, *ends))
    x, y, low, high = np.array(points).T
    axes.plot(x, y, color=style.colour, marker=style.marker, ls=style.line)
    axes.vlines(x, low, high, color=style.colour, lw=0.8)


def record_average(
    builder: FigureBuilder, axes: Axes, cell: Cell, shown: Mapping[str, Any]
) -> tuple[float, float, float]:
    """The mean height of the win-rate over updates, with its interval over seeds."""
    values = values_at(cell, (UPDATES, WIN_RATE))
    curves = [RunCurve(*np.array([*each.values()]).T) for each in values.values()]
    heights, _ = areas(curves)
    by_seed = dict(zip(values, heights.tolist(), strict=True))
    own: dict[str, Any] = {"n": len(by_seed), "seeds": seeds_column([*by_seed])}
    ends = (float(heights.mean()), np.nan, np.nan)
    if len(by_seed) > 1:
        contrast = in_pairs(by_seed, dict.fromkeys(by_seed, 0.0))
        made = difference(contrast, options_for(WIN_RATE, heights))
        ends, own["interval"] = (made.point, made.low, made.high), made.basis.options.text
    builder.limits.include(axes, "y", WIN_RATE, ends)
    builder.add(cell, **shown, **own, y_name=AVERAGE, y=ends[0], low=ends[1], high=ends[2])
    return ends

"""Draw paired effects: differences from a first condition, seed by seed, with their intervals.

Intervals of levels hold what seeds differ in, which conditions of the same seeds share; those of
differences do not.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from rlhf_lab_analysis.comparison.cell import Cell, with_common_seeds
from rlhf_lab_analysis.comparison.families import Family, order, value_of
from rlhf_lab_analysis.figures.families import group_by
from rlhf_lab_analysis.figures.figure_builder import FigureBuilder
from rlhf_lab_analysis.figures.grouping import rank
from rlhf_lab_analysis.figures.interval_rows import interval_bar, record_estimate
from rlhf_lab_analysis.figures.ladders import ASIDE, LadderSpec, set_scale
from rlhf_lab_analysis.figures.mean_curves import STUDENT, bands, values_at
from rlhf_lab_analysis.figures.primitives import band, name_of, outer, seeds_column, style_of
from rlhf_lab_analysis.figures.series_style import GREY
from rlhf_lab_analysis.statistics.contrasts import difference, in_pairs
from rlhf_lab_analysis.statistics.results import Estimate
from rlhf_lab_analysis.words import in_words, label, setting_text, short_label

# Pairs that an interval needs.
PAIRS = 2
NOTE = (
    "Differences are in pairs of the seeds that both conditions have, with their own intervals: "
    "these are what conditions are compared by. Intervals of levels are between seeds, and may "
    "overlap where each seed shows the same difference."
)


def difference_name(metric: str) -> str:
    """What the data call a difference of a metric."""
    return f"difference of {label(metric)}"


def paired(cell: Cell, first: Cell, metric: str) -> tuple[Estimate, list[int]] | None:
    """The mean difference of the last version with its interval, and the common seeds; None of
    fewer than two."""
    ours, theirs = (one.scores(metric) for one in with_common_seeds(cell, first))
    if len({*ours} & {*theirs}) < PAIRS:
        return None
    pairs = in_pairs(ours, theirs)
    return difference(pairs, STUDENT), list(pairs.seeds)


def note_pairs(builder: FigureBuilder) -> None:
    """State once what differences are."""
    if NOTE not in builder.notes:
        builder.notes.append(NOTE)


def first_of(cells: Sequence[Cell], cell: Cell) -> Cell:
    """What a condition is compared with: the freshest of its algorithm, where others of it are
    there, else of all."""
    alike = [one for one in cells if one.parts["algo"] == cell.parts["algo"]]
    return min(alike if len(alike) > 1 else cells, key=lambda one: rank(one)[1:])


def paired_rows(
    builder: FigureBuilder, axes: Axes, cells: Sequence[Cell], metric: str, keys: Sequence[str]
) -> None:
    """Differences of the last version from the freshest condition, a row for each of the others, in
    the rows in which the levels are beside it."""
    for row, cell in enumerate(cells):
        first, style = first_of(cells, cell), style_of(cell, keys)
        if cell is first:
            axes.plot([0], [row], color=GREY, marker="|", ms=7, mew=1.4)
        elif found := paired(cell, first, metric):
            estimate, seeds = found
            interval_bar(axes, (estimate.low, estimate.high), row, style.colour)
            at = estimate.point
            axes.plot([at], [row], color=style.colour, marker=style.marker, mec="white", mew=0.4)
            record_difference(builder, axes, cell, estimate, seeds, first, metric, keys)
    axes.axvline(0, color=GREY, lw=0.7)
    axes.grid(axis="x", color=GREY, alpha=0.2, lw=0.5)
    firsts = {name_of(first_of(cells, cell), keys) or "first" for cell in cells}
    beside = in_words(firsts.pop()) if len(firsts) == 1 else "first of the algorithm"
    axes.set_xlabel(f"{short_label(metric)} less\n{beside}, in pairs")
    note_pairs(builder)


def record_difference(
    builder: FigureBuilder,
    axes: Axes,
    cell: Cell,
    estimate: Estimate,
    seeds: Sequence[int],
    first: Cell,
    metric: str,
    keys: Sequence[str],
) -> None:
    record_estimate(
        builder, axes, cell, without_warnings(estimate), seeds, condition=name_of(cell, keys),
        part=f"paired, less {name_of(first, keys)}", y_name=difference_name(metric),
    )  # fmt: skip


def without_warnings(estimate: Estimate) -> Estimate:
    """The levels beside it have the warnings of few seeds."""
    basis = estimate.basis
    plain = type(basis)(basis.seeds, basis.tasks, basis.options)
    return Estimate(estimate.name, estimate.point, estimate.low, estimate.high, plain)


def difference_ladder(
    builder: FigureBuilder, axes: Axes, cells: Sequence[Cell], spec: LadderSpec
) -> None:
    """Differences of the last version from the condition with the least number on the x-axis, in
    pairs, a line for each value of the first key."""
    least = min(float(value_of(cell, spec.over)) for cell in cells)
    lines = group_by(cells, lambda cell: name_of(cell, spec.keys[:1]))
    keys = list(dict.fromkeys([*spec.keys, spec.over]))
    for index, group in enumerate(lines):
        first = base_of(group, cells, spec.over)
        aside = (index - (len(lines) - 1) / 2) * ASIDE
        points = []
        for cell in sorted(group, key=lambda one: order(value_of(one, spec.over))):
            at, style = float(value_of(cell, spec.over)), style_of(cell, spec.keys)
            x = at * (1 + aside) if at > 0 else aside
            if cell is first:
                points.append((x, 0.0))
            elif found := paired(cell, first, spec.metric):
                estimate, seeds = found
                ends = (estimate.point, estimate.low, estimate.high)
                points.append((x, ends[0]))
                axes.vlines(x, *ends[1:], color=style.colour, lw=0.8)
                axes.plot(x, ends[0], color=style.colour, marker=style.marker, ls="none")
                part = f"paired, less {name_of(first, keys)}"
                builder.limits.include(axes, "y", difference_name(spec.metric), ends)
                builder.add(
                    cell, condition=name_of(cell, keys), part=part,
                    x_name=spec.over, x=at, y_name=difference_name(spec.metric), y=ends[0],
                    low=ends[1], high=ends[2], n=len(seeds), seeds=seeds_column(seeds),
                    interval=estimate.basis.options.text,
                )  # fmt: skip
        style = style_of(group[0], spec.keys)
        if points:
            x_P, y_P = zip(*points, strict=True)
            axes.plot(x_P, y_P, color=style.colour, linestyle=style.line)
    axes.axhline(0, color=GREY, lw=0.7)
    before = setting_text(spec.over, f"{least:g}")
    axes.set_ylabel(f"{short_label(spec.metric)}\nless {before}, in pairs")
    outer(axes, spec.over)
    set_scale(axes, cells, spec.over)
    note_pairs(builder)


def base_of(group: Sequence[Cell], cells: Sequence[Cell], over: str) -> Cell:
    """What a line is compared with: its least number; that of another line where it lacks the
    least of all."""
    least = min(order(value_of(cell, over)) for cell in cells)
    own = [cell for cell in group if order(value_of(cell, over)) == least]
    every = [cell for cell in cells if order(value_of(cell, over)) == least]
    return min(own or every, key=rank)


def paired_band(
    builder: FigureBuilder, axes: Axes, family: Family, keys: Sequence[str], xy: tuple[str, str]
) -> None:
    """Differences from the freshest condition at each x that both were evaluated at, with bands."""
    x, y = xy
    for cell in family.cells:
        first = first_of(family.cells, cell)
        if cell is first:
            continue
        ours, theirs = (by_x(one, xy) for one in with_common_seeds(cell, first))
        common = [seed for seed in ours if seed in theirs]
        if len(common) < PAIRS:
            continue
        grids = [set(each[seed]) for each in (ours, theirs) for seed in common]
        at = sorted(set.intersection(*grids))
        if not at:
            continue
        apart_SV = np.array([[ours[s][one] - theirs[s][one] for one in at] for s in common])
        (mean_V, low_V, high_V), interval, _ = bands(apart_SV, difference_name(y))
        style = style_of(cell, keys)
        axes.plot(at, mean_V, color=style.colour, marker=style.marker, linestyle=style.line)
        band(axes, at, (low_V, high_V), style)
        for one, *ends in zip(at, mean_V, low_V, high_V, strict=True):
            point, low, high = map(float, ends)
            builder.limits.include(axes, "y", difference_name(y), (point, low, high))
            builder.limits.include(axes, "x", x, (one, one, one))
            builder.add(
                cell, condition=name_of(cell, keys), part=f"paired, less {name_of(first, keys)}",
                x_name=x, x=one, y_name=difference_name(y), y=point, low=low, high=high,
                n=len(common), seeds=seeds_column(common), interval=interval,
            )  # fmt: skip
    axes.axhline(0, color=GREY, lw=0.7)
    beside = name_of(first_of(family.cells, family.first), keys)
    axes.set_ylabel(f"{short_label(y)}\nless {in_words(beside)}, in pairs")
    outer(axes, x)
    note_pairs(builder)


def by_x(cell: Cell, xy: tuple[str, str]) -> dict[int, dict[float, float]]:
    """y at each x, by seed."""
    return {seed: {x: y for x, y in rows.values()} for seed, rows in values_at(cell, xy).items()}

"""From runs to a figure, in one call."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from rlhf_lab.runs.trackers.console import counted
from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.comparison.cell import Cell
from rlhf_lab_analysis.comparison.comparable_time import TIMES, why_not_comparable
from rlhf_lab_analysis.comparison.families import order
from rlhf_lab_analysis.comparison.names import (
    TASK,
    Naming,
    key_text,
    name_of,
    named_value,
    naming,
)
from rlhf_lab_analysis.comparison.selection import Selection
from rlhf_lab_analysis.plots import timelines
from rlhf_lab_analysis.plots.lines import (
    AXES,
    METRICS,
    SEEDS,
    column,
    default_metric,
    has,
)
from rlhf_lab_analysis.plots.panels import (
    Drawing,
    Form,
    Panel,
    Request,
    base_text,
    fill,
    ladder_groups,
)
from rlhf_lab_analysis.plots.style import WIDTHS, Style, looks, on_paper
from rlhf_lab_analysis.ranges import first_few, span_text
from rlhf_lab_analysis.words import FLOPS, UPDATES, in_words, label

# Inches of a row of panels, of a row of ends, and of a line of the legend.
ROW, END_ROW, LEGEND_ROW = 2.0, 0.17, 0.14
# Letters that an inch of a legend or a title holds, at 7 points.
LETTERS = 16
# Letters that a line's sample takes beside its name.
SAMPLE = 9


@dataclass(frozen=True, eq=False)
class Plot:
    """A figure, what is drawn in it (a row for each point of each seed and of the means), and a
    sentence on what is shown. notes: runs that are left out, and what is doubtful."""

    figure: Figure
    data: pd.DataFrame
    sentence: str
    notes: tuple[str, ...]


def draw(selection: Selection, request: Request, style: Style, axes: Axes | None = None) -> Plot:
    """Draw the figure that is wanted of these conditions. axes: to draw in, of figures with one
    panel. Raises UserError for a metric or key that no run has, and where nothing is left."""
    chosen, pairs, left_out = measured(selection, request)
    made = Drawing(request, style, *laid_out(chosen, request, style), pairs, {})
    names = style.ordered(name for panel in made.panels for name in panel.cells)
    is_ladder = request.form is Form.ends and made.naming.numeric_keys
    style.check_order([*names, *(ladder_groups(made.naming).values() if is_ladder else ())])
    made.look = looks(names, style, len(made.naming.numeric_keys) == len(made.naming.keys))
    with on_paper(style):
        figure, grid = canvas(made, axes)
        for panel, row in zip(made.panels, grid, strict=True):
            for pair, place in zip(pairs, row, strict=True):
                fill(made, panel, pair, place)
        legend(made, figure, axes)
    if {x for x, _ in pairs} & set(TIMES) and (reason := why_not_comparable(chosen)):
        made.notes.append(f"warning: seconds are not comparable: {reason}")
    notes = (*left_out, *dict.fromkeys(made.notes))
    return Plot(figure, pd.DataFrame(made.rows), sentence(made), notes)


def measured(
    selection: Selection, request: Request
) -> tuple[list[Cell], list[tuple[str, str]], list[str]]:
    """The conditions that have the numbers, the columns of x and y, and what is left out."""
    cells = list(selection.cells)
    if not cells:
        raise UserError("\n".join(["no run can be drawn", *selection.left_out]))
    if request.form is Form.timeline:
        return timelines.recorded(cells), [("", "")], list(selection.left_out)
    pairs = pairs_of(cells, request)
    kept = [cell for cell in cells if all(has(cell, *pair) for pair in pairs)]
    lacking = together(f"{label(y)} over {label(x)}" for x, y in pairs)
    lost = [
        f"left out: {cell.condition} [{cell.env}] (no {lacking})"
        for cell in cells
        if cell not in kept
    ]
    if not kept:
        raise UserError("\n".join([f"no run has {lacking}", *lost]))
    return kept, pairs, [*selection.left_out, *lost]


def pairs_of(cells: Sequence[Cell], request: Request) -> list[tuple[str, str]]:
    """Columns of x and y of each panel. Raises UserError for names that no run has."""
    default = FLOPS if request.form is Form.front else UPDATES
    x = [column(name, AXES, cells) for name in request.x] or [default]
    y = [column(name, METRICS, cells) for name in request.y] or [default_metric(cells)]
    x, y = x * (len(y) if len(x) == 1 else 1), y * (len(x) if len(y) == 1 else 1)
    if len(x) != len(y):
        raise UserError(f"-x {' '.join(x)}: pass one, or one for each of -y {' '.join(y)}")
    return list(zip(x, y, strict=True))


def laid_out(
    cells: Sequence[Cell], request: Request, style: Style
) -> tuple[tuple[str, ...], Naming, list[Panel]]:
    """The keys in which conditions differ, how they are named in a panel, and the panels: one for
    each task, value of the facets, and where `by` is given, combination of the other keys."""
    whole = naming(cells)
    known = {*whole.keys, *whole.follow}
    for option, keys in (("--by", request.by), ("--facet", request.facet)):
        for key in keys:
            if key not in known:
                there = ", ".join(whole.keys) or "none"
                raise UserError(f"{option} {key}: conditions do not differ in it; keys are {there}")
    rest = [key for key in whole.keys if key not in request.by] if request.by else []
    facets = list(dict.fromkeys([TASK, *request.facet, *rest]))
    differ = [key for key in facets if len({named_value(cell, key) for cell in cells}) > 1]
    own = naming(cells, facets) if differ else whole
    panels: dict[tuple[Any, ...], dict[str, Cell]] = {}
    ranks = {cell: tuple(named_value(cell, key) for key in facets) for cell in cells}
    for cell in sorted(own.cells, key=lambda one: [order(value) for value in ranks[one]]):
        panels.setdefault(ranks[cell], {})[own.of(cell)] = cell
    named = [
        Panel(
            in_words(name_of(next(iter(found.values())), differ)) if differ else "",
            {name: found[name] for name in style.ordered(found)},
        )
        for found in panels.values()
    ]
    return whole.keys, own, named


def canvas(made: Drawing, axes: Axes | None) -> tuple[Figure, list[list[Axes]]]:
    """The figure, and the axes of each panel, one for each y."""
    many = len(made.pairs)
    if axes is not None:
        if len(made.panels) * many > 1:
            titles = ", ".join(panel.title for panel in made.panels)
            raise UserError(f"ax: the figure has several panels ({titles}): draw it without ax")
        found = axes.get_figure(root=True)
        assert found is not None
        return found, [[axes]]
    columns = many if many > 1 else min(made.style.columns, len(made.panels))
    rows = math.ceil(len(made.panels) * many / columns)
    size = made.style.size
    heights = ROW
    if per := rows_of(made):
        heights = max(1.0, 0.6 + per * END_ROW * max(len(panel.cells) for panel in made.panels))
    width = WIDTHS["half" if columns == 1 and made.request.form is not Form.timeline else "page"]
    if isinstance(size, str):
        width = WIDTHS.get(size, width)
        dimensions = (width, 0.3 + rows * heights)
    else:
        dimensions = (float(size[0]), float(size[1]))
    figure = Figure(figsize=dimensions, layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    flat = list(grid.flat)
    for spare in flat[len(made.panels) * many :]:
        spare.set_axis_off()
    return figure, [flat[many * i : many * (i + 1)] for i in range(len(made.panels))]


def rows_of(made: Drawing) -> int:
    """Rows that a condition takes in a panel, where it takes some of its own."""
    is_ladder = made.naming.numeric_keys
    return {Form.ends: 0 if is_ladder else 1, Form.timeline: timelines.LANES}.get(
        made.request.form, 0
    )


def legend(made: Drawing, figure: Figure, axes: Axes | None) -> None:
    """The names of what is drawn, below the panels; none for a single one."""
    if made.request.form is Form.timeline:
        timelines.legend(figure)
        return
    drawn = {row["condition"] for row in made.rows}
    shown = {
        name: look
        for name, look in made.shown.items()
        if name in drawn or name not in made.naming.names
    }
    fewest = 1 if made.request.diff else 2
    if not made.style.legend or len(shown) < fewest:
        return
    is_mark = made.request.form is Form.front
    handles = [
        Line2D([], [], color=one.colour, marker=one.marker, ls="none" if is_mark else one.line)
        for one in shown.values()
    ]
    names = ["\n".join(wrap(made.style.text(name), 60)) for name in shown]
    if axes is not None:
        axes.legend(handles, names)
        return
    longest = max(len(part) for name in names for part in name.split("\n"))
    columns = max(1, min(len(names), int(LETTERS * figure.get_figwidth() / (longest + SAMPLE))))
    figure.legend(handles, names, loc="outside lower center", ncols=columns, handlelength=2.6)
    if isinstance(made.style.size, str):
        lines = max(name.count("\n") + 1 for name in names) * math.ceil(len(names) / columns)
        figure.set_figheight(figure.get_figheight() + LEGEND_ROW * lines)


def sentence(made: Drawing) -> str:
    """What is shown, of which conditions, over which seeds, with which intervals."""
    drawn = [cell for panel in made.panels for cell in panel.cells.values()]
    x, y = (together(map(label, dict.fromkeys(names))) for names in zip(*made.pairs, strict=True))
    what = y or "who works when"
    over = {
        Form.curves: f" over {x}",
        Form.ends: " at the end",
        Form.front: f" at the end against {x}",
        Form.heat: " at the end",
    }.get(made.request.form, "")
    less_that = f", less that of {base_text(made)}, in pairs of seeds," if made.request.diff else ""
    keys = together(map(key_text, made.keys))
    differ = f" that differ in {keys}" if keys else ""
    names = "; ".join(first_few(list(made.look), "conditions"))
    counts = [len(cell.seeds) for cell in drawn]
    seeds = f"{span_text(counts)} {drawn[0].unit}{'' if set(counts) == {1} else 's'}"
    interval = "95% intervals of the mean over seeds"
    if made.request.form is Form.timeline:
        interval = "of the first seed"
    elif max(counts) < SEEDS:
        interval = f"no intervals, which take {SEEDS} seeds"
    conditions = f"{counted(len(drawn), 'condition')}{differ} ({names})"
    each = " each" if len(drawn) > 1 else ""
    return (
        f"{what[0].upper()}{what[1:]}{over}{less_that} of {conditions}; {seeds}{each}, {interval}."
    )


def together(words: Iterable[str]) -> str:
    """Words with commas, and `and` before the last."""
    *first, last = [*words] or [""]
    return f"{', '.join(first)} and {last}" if first else last

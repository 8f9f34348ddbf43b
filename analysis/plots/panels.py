"""What a figure is made of, and the drawing of one panel."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from textwrap import wrap
from typing import Any

from matplotlib.axes import Axes

from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.comparison.baselines import baseline_of, setting_of
from rlhf_lab_analysis.comparison.cell import Cell
from rlhf_lab_analysis.comparison.names import Naming, name_of, value_text
from rlhf_lab_analysis.plots import forms, timelines
from rlhf_lab_analysis.plots.lines import Line, curve, end, less
from rlhf_lab_analysis.plots.round_seconds import thinning_note
from rlhf_lab_analysis.plots.style import Look, Style, looks
from rlhf_lab_analysis.words import COMPLETIONS, UPDATES, in_words, short_label

# Letters of a line of a panel's title, and of the name of its y-axis.
TITLE, NAME = 38, 36
COUNTS = (UPDATES, "x/rounds", COMPLETIONS)
# Conditions from which on a panel is too full to read.
MANY = 24


class Form(StrEnum):
    """What a figure shows. curves: y over x. ends: y at the end, a row for each condition, or over
    the number in which they differ. front: y at the end against its cost x. heat: means at the end
    over two keys. timeline: who worked when."""

    curves = "curves"
    ends = "ends"
    front = "front"
    heat = "heat"
    timeline = "timeline"


@dataclass(frozen=True)
class Request:
    """y, x: columns, or short names of them (lines.METRICS, lines.AXES), a panel for each pair; one
    x goes with every y, one y with every x. diff: what every other condition is compared with,
    `key=value` or a condition's name. by: keys in which the lines of a panel differ; each
    combination of the other keys has a panel. facet: keys whose values have panels."""

    y: Sequence[str] = ()
    x: Sequence[str] = ()
    form: Form = Form.curves
    diff: str = ""
    by: Sequence[str] = ()
    facet: Sequence[str] = ()


@dataclass(frozen=True, eq=False)
class Panel:
    """A panel's conditions by name. title: what they share that other panels do not."""

    title: str
    cells: dict[str, Cell]


@dataclass(eq=False)
class Drawing:
    """What a figure is made of while it is drawn. keys: in which its conditions differ. naming: of
    the conditions in a panel."""

    request: Request
    style: Style
    keys: tuple[str, ...]
    naming: Naming
    panels: Sequence[Panel]
    pairs: Sequence[tuple[str, str]]
    look: dict[str, Look]
    rows: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    shown: dict[str, Look] = field(default_factory=dict)


def fill(made: Drawing, panel: Panel, pair: tuple[str, str], axes: Axes) -> None:
    """Draw one panel, with its title and the names of its axes. pair: columns of x and y."""
    request, style = made.request, made.style
    if style.title and panel.title:
        axes.set_title("\n".join(wrap(style.text(panel.title), TITLE)))
    if request.form is Form.timeline:
        made.rows += timelines.draw(axes, panel.cells, style)
        every = (thinning_note(cell, cell.seeds[0]) for cell in panel.cells.values())
        made.notes += filter(None, every)
        return
    if len(panel.cells) > MANY and not made.naming.numeric_keys:
        keys = ", ".join(made.naming.keys)
        made.notes.append(
            f"{len(panel.cells)} conditions in one panel: pass --facet or --by with keys of {keys}"
        )
    lines = lines_of(made, panel, pair)
    axes.set_xlabel(style.text(short_label(pair[0])))
    axes.set_ylabel(style.text(axis_name(made, pair[1])))
    PAINTERS[request.form](made, axes, lines, pair[0])
    made.rows += [row for one in lines for row in data_of(made, panel, one, pair)]


def paint_curves(made: Drawing, axes: Axes, lines: Sequence[Line], x: str) -> None:
    """Lines over x."""
    forms.curves(axes, lines, made.look, made.style)
    scale_axes(made, axes, x)
    finish(made, axes, lines, "y")


def paint_ends(made: Drawing, axes: Axes, lines: Sequence[Line], _: str) -> None:
    """Rows, or a ladder where the conditions differ in a number of three values or more."""
    if not (numbers := made.naming.numeric_keys):
        forms.ends(axes, lines, made.look, made.style)
        axes.set_xlabel(axes.get_ylabel())
        axes.set_ylabel("")
        forms.few_ticks(axes)
        finish(made, axes, lines, "x")
        return
    groups = ladder_groups(made.naming)
    names = made.style.ordered(groups[one.name] for one in lines)
    own = looks(names, made.style, is_number=False)
    forms.ladder(axes, lines, numbers[0], groups, own)
    axes.set_xlabel(made.style.text(short_label(numbers[0])))
    finish(made, axes, lines, "y")
    made.shown |= {one: own[one] for one in names if one}


def ladder_groups(names: Naming) -> dict[str, str]:
    """The name of each condition without the number over which a ladder has it."""
    others = [key for key in names.keys if key != names.numeric_keys[0]]
    return {names.of(cell): name_of(cell, others) if others else "" for cell in names.cells}


def paint_front(made: Drawing, axes: Axes, lines: Sequence[Line], x: str) -> None:
    """Marks in the plane of cost and quality; the notes have who is on the front."""
    found = forms.fronts(axes, lines, made.look, made.style)
    scale_axes(made, axes, x)
    for point in found.points if found else ():
        share = f"{100 * point.membership:.0f}%"
        made.notes.append(f"{point.condition}: on the front in {share} of draws of seeds")


def paint_heat(made: Drawing, axes: Axes, lines: Sequence[Line], _: str) -> None:
    """A cell for each combination of two keys."""
    keys = heat_keys(made)
    forms.heat(axes, lines, keys, axes.get_ylabel())
    axes.set_xlabel(made.style.text(short_label(keys[0])))
    axes.set_ylabel(made.style.text(short_label(keys[1])))


PAINTERS: Mapping[Form, Callable[[Drawing, Axes, Sequence[Line], str], None]] = {
    Form.curves: paint_curves,
    Form.ends: paint_ends,
    Form.front: paint_front,
    Form.heat: paint_heat,
}


def finish(made: Drawing, axes: Axes, lines: Sequence[Line], along: str) -> None:
    """A line at zero for differences, and limits. along: the axis of the values."""
    if made.request.diff:
        (axes.axvline if along == "x" else axes.axhline)(0, color="black", lw=0.6, zorder=0)
    if along not in made.style.log and forms.limit(axes, lines, along):
        made.notes.append("intervals that leave a panel are cut there; the CSV has their ends")


def scale_axes(made: Drawing, axes: Axes, x: str) -> None:
    """Scales of both axes, and few ticks of x; the lines' names go into the legend."""
    for which, setter in (("x", axes.set_xscale), ("y", axes.set_yscale)):
        if which in made.style.log:
            setter("log")
    forms.few_ticks(axes, x in COUNTS)
    made.shown |= made.look


def axis_name(made: Drawing, y: str) -> str:
    """The metric in words; of differences, less what."""
    less_that = f" less that of {base_text(made)}" if made.request.diff else ""
    return "\n".join(wrap(f"{short_label(y)}{less_that}", NAME))


def base_text(made: Drawing) -> str:
    """The baseline of differences in words."""
    key, value = setting_of(made.request.diff)
    return in_words(value_text(key, value)) if value else made.request.diff


def lines_of(made: Drawing, panel: Panel, pair: tuple[str, str]) -> list[Line]:
    """The lines of a panel, or what each differs by from the baseline."""
    of = curve if made.request.form is Form.curves else end
    lines = {name: of(cell, name, *pair) for name, cell in panel.cells.items()}
    if not made.request.diff:
        return list(lines.values())
    bases = {name: baseline(made, panel, name) for name in lines}
    return [less(one, lines[base]) for name, one in lines.items() if (base := bases[name]) != name]


def baseline(made: Drawing, panel: Panel, name: str) -> str:
    """The condition that one is compared with; itself where it is a baseline. Raises UserError
    where there is none."""
    wanted, keys = made.request.diff, made.naming.keys
    if wanted in panel.cells:
        return wanted
    setting = setting_of(wanted)
    if setting[0] not in (*keys, *made.naming.follow) or not setting[1]:
        raise UserError(
            f"--diff {wanted}: pass KEY=VALUE with a key of {', '.join(keys)}, or one of "
            f"{'; '.join(panel.cells)}"
        )
    found = baseline_of(panel.cells[name], panel.cells.values(), keys, setting)
    if found is None:
        raise UserError(f"--diff {wanted}: no condition beside {name} has it and equals it else")
    return next(other for other, cell in panel.cells.items() if cell is found)


def heat_keys(made: Drawing) -> tuple[str, str]:
    """The two keys of a heat map. Raises UserError unless conditions differ in two."""
    keys = list(made.request.by) or list(made.naming.keys)
    if len(keys) != 2:
        raise UserError(
            f"--heat: conditions differ in {', '.join(made.naming.keys) or 'nothing'}; a heat map "
            "takes two keys: pass --by KEY KEY"
        )
    return keys[0], keys[1]


def data_of(
    made: Drawing, panel: Panel, one: Line, pair: tuple[str, str]
) -> Iterable[dict[str, Any]]:
    """The rows of a condition: each seed's points, then the means with n and their interval."""
    own = {
        "panel": panel.title, "condition": one.name, "sweep": one.cell.sweep,
        "environment": one.cell.env, "x_name": pair[0], "y_name": pair[1],
        "less": made.request.diff,
    }  # fmt: skip
    for seed, rows in one.seeds.items():
        for x, value in zip(rows["x"], rows["y"], strict=True):
            yield {**own, "seed": seed, "n": 1, "x": x, "y": value}
    for x, value, low, high in zip(one.x, one.y, one.low, one.high, strict=True):
        yield {**own, "seed": "mean", "n": len(one.seeds), "x": x, "y": value, "low": low,
               "high": high}  # fmt: skip

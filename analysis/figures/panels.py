"""Figures of panels: a row for each family of conditions, a column for each pair of axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from matplotlib.axes import Axes

from analysis.figures.blocks import band_curve, end_point, named_axes, path
from analysis.figures.courses import Course
from analysis.figures.families import Family
from analysis.figures.names import KL, label
from analysis.figures.sheet import Sheet
from analysis.figures.style import DOUBLE, SINGLE, page, plain
from analysis.selection import Cell

Pair: TypeAlias = tuple[str, str]
Draw: TypeAlias = Callable[[Sheet, Axes, Cell, Sequence[str], Pair], Course]


def begin(shows: str, rows: int, columns: int) -> tuple[Sheet, list[list[Axes]]]:
    """A sheet with panels; one column of a paper wide if there is one of panels."""
    figure, axes = page(rows, columns, width=SINGLE if columns == 1 else DOUBLE)
    return Sheet(figure, shows), axes.tolist()


def grid(
    shows: str,
    families: Sequence[Family],
    told: Sequence[str],
    pairs: Sequence[Pair],
    title: Sequence[str] = ("task", "model"),
) -> Sheet:
    """A row of panels for each family: paths where x is a KL, else curves with bands."""
    sheet, axes = begin(shows, len(families), len(pairs))
    for row, family in zip(axes, families, strict=True):
        for place, (panel, pair) in enumerate(zip(row, pairs, strict=True)):
            named_axes(panel, *pair, title=family_title(family, families, title, place))
            draw: Draw = path if pair[0] == KL else band_curve
            for cell in family.cells:
                draw(sheet, panel, cell, told, pair)
    return sheet


def family_title(
    family: Family, families: Sequence[Family], keys: Sequence[str], column: int
) -> str:
    """Of the first panel of a row; where there is one row, its environment is said once too."""
    if column:
        return ""
    told = [key for key in keys if key in family.shared]
    names = [plain(each.title(told)) for each in families]
    name = plain(family.title(told))
    return name if names.count(name) == 1 else f"{name} ({family.cells[0].sweep})"


def ends(sheet: Sheet, axes: Axes, family: Family, told: Sequence[str], pair: Pair) -> None:
    """The last version of each condition in the plane of two metrics."""
    axes.set_xlabel(label(pair[0]))
    axes.set_ylabel(label(pair[1]))
    for cell in family.cells:
        end_point(sheet, axes, cell, told, pair)

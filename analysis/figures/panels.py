"""Figures of panels: a row for each family of conditions, a column for each pair of axes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from matplotlib.axes import Axes

from analysis.comparison.selection import Cell
from analysis.figures.blocks import band_curve, end_point, outer, path
from analysis.figures.courses import Course
from analysis.figures.families import Family
from analysis.figures.names import KL, short
from analysis.figures.sheet import Sheet
from analysis.figures.style import DOUBLE, ROW, SINGLE, SMALL_ROW, page, plain
from analysis.sources.conditions import LETTERS, PARTS

# Rows from which on they are drawn smaller.
MANY = 3
# What tells families of one name apart, before their sweep does.
TELLING = (*PARTS, *LETTERS)
Pair: TypeAlias = tuple[str, str]
Draw: TypeAlias = Callable[[Sheet, Axes, Cell, Sequence[str], Pair], Course]


def begin(shows: str, rows: int, columns: int) -> tuple[Sheet, list[list[Axes]]]:
    """A sheet with panels; one column of a paper wide if there is one of panels. Panels above each
    other have the same scales, so that rows can be compared."""
    figure, axes = page(
        rows,
        columns,
        width=SINGLE if columns == 1 else DOUBLE,
        height=ROW if rows < MANY else SMALL_ROW,
        sharex="col",
        sharey="col",
    )
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
    for family, row in in_rows(sheet, families, axes, title):
        for panel, pair in zip(row, pairs, strict=True):
            draw: Draw = path if pair[0] == KL else band_curve
            panel.set_ylabel(short(pair[1]))
            for cell in family.cells:
                draw(sheet, panel, cell, told, pair)
            outer(panel, pair[0])
    return sheet


def in_rows(
    sheet: Sheet, families: Sequence[Family], axes: Sequence[list[Axes]], title: Sequence[str]
) -> Iterator[tuple[Family, list[Axes]]]:
    """Each family with its row of panels, of which the first gets its name.

    It is called by what its conditions share; families of the same name are told apart by other
    parts that they share and that differ between them, and where there are none by sweep.
    """
    names = [
        plain(family.title([key for key in title if key in family.shared])) for family in families
    ]
    for family, row, name in zip(families, axes, told_apart(families, names), strict=True):
        sheet.group = name
        row[0].set_title(sheet.group)
        yield family, row


def told_apart(families: Sequence[Family], names: Sequence[str]) -> list[str]:
    """The names, with what else it takes where several families have the same one."""
    found = []
    for family, name in zip(families, names, strict=True):
        alike = [each for each, same in zip(families, names, strict=True) if same == name]
        parts = [
            key
            for key in TELLING
            if all(key in each.shared for each in alike)
            and len({str(each.shared[key]) for each in alike}) > 1
        ]
        more = plain(family.cells[0].title(parts))
        words = [name, more] if more and more not in name else [name]
        own = " ".join(words)
        is_clear = len({each.cells[0].title(parts) for each in alike}) == len(alike)
        found.append(own if is_clear else f"{own} ({family.cells[0].sweep})")
    return found


def ends(sheet: Sheet, axes: Axes, family: Family, told: Sequence[str], pair: Pair) -> None:
    """The last version of each condition in the plane of two metrics."""
    axes.set_ylabel(short(pair[1]))
    outer(axes, pair[0])
    for cell in family.cells:
        end_point(sheet, axes, cell, told, pair)

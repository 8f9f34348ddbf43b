"""Draw figures of panels: a row for each family of conditions, a column for each pair of axes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import fill
from typing import TypeAlias

from matplotlib.axes import Axes

from rlhf_lab_analysis.comparison.families import Family
from rlhf_lab_analysis.figures.figure_builder import FigureBuilder
from rlhf_lab_analysis.figures.grouping import separating_keys, setting_name
from rlhf_lab_analysis.figures.paired import paired_band
from rlhf_lab_analysis.figures.primitives import band_curve, end_point, outer, path
from rlhf_lab_analysis.figures.style import DOUBLE, ROW, SINGLE, SMALL_ROW, page, plain
from rlhf_lab_analysis.sources.conditions import LETTERS, PARTS
from rlhf_lab_analysis.words import DRIFTS, in_words, short_label

# Of a title, which begins at its panel and may go on above those beside it.
LETTERS_AN_INCH = 12
# Rows from which on they are drawn smaller.
MANY = 3
# What distinguishes families of one name, before their sweep does.
DISTINGUISHING = (*PARTS, *LETTERS)
Pair: TypeAlias = tuple[str, str]


def begin(rows: int, columns: int) -> tuple[FigureBuilder, list[list[Axes]]]:
    """A figure of panels; one column of a paper wide if there is one of panels. Panels above each
    other have the same scales, so that rows can be compared."""
    width = SINGLE if columns == 1 else DOUBLE
    height = ROW if rows < MANY else SMALL_ROW
    figure, axes = page(rows, columns, width, height, sharex="col", sharey="col")
    return FigureBuilder(figure), axes.tolist()


def grid(
    families: Sequence[Family],
    keys: Sequence[str],
    pairs: Sequence[Pair],
    title: Sequence[str] = ("task", "model"),
    paired: Pair | None = None,
) -> FigureBuilder:
    """A row of panels for each family: paths where x is a drift, else curves with bands. paired:
    axes of one more panel, of differences from the freshest condition."""
    builder, axes = begin(len(families), len(pairs) + bool(paired))
    for family, row in in_rows(builder, families, axes, title):
        if paired:
            paired_band(builder, row[-1], family, keys, paired)
        for panel, pair in zip(row, pairs, strict=False):
            draw = path if pair[0] in DRIFTS else band_curve
            panel.set_ylabel(short_label(pair[1]))
            for cell in family.cells:
                draw(builder, panel, cell, keys, pair)
            outer(panel, pair[0])
    return builder


def in_rows(
    builder: FigureBuilder,
    families: Sequence[Family],
    axes: Sequence[list[Axes]],
    title: Sequence[str],
) -> Iterator[tuple[Family, list[Axes]]]:
    """Each family with its row of panels, of which the first gets its name.

    It is called by what its conditions share; families of the same name are distinguished by other
    parts that they share and that differ between them, then by sweep, and those of one sweep by
    settings.
    """
    every = families[0].among or families
    names = [plain(each.title([key for key in title if key in each.shared])) for each in every]
    distinct = dict(zip((each.cells for each in every), distinct_titles(every, names), strict=True))
    for family, row in zip(families, axes, strict=True):
        builder.group = distinct[family.cells]
        letters = int(LETTERS_AN_INCH * builder.figure.get_figwidth())
        row[0].set_title(fill(in_words(builder.group), letters))
        yield family, row


def distinct_titles(families: Sequence[Family], names: Sequence[str]) -> list[str]:
    """The names, with more parts and settings where several families have the same one."""
    distinct = []
    for family, name in zip(families, names, strict=True):
        alike = [each for each, same in zip(families, names, strict=True) if same == name]
        parts = [
            key
            for key in DISTINGUISHING
            if all(key in each.shared for each in alike)
            and len({str(each.shared[key]) for each in alike}) > 1
        ]
        more = plain(family.first.title(parts))
        own = f"{name} {more}" if more and more not in name else name
        equals = [each for each in alike if each.first.title(parts) == family.first.title(parts)]
        kin = [each for each in equals if each.first.sweep == family.first.sweep]
        keys = separating_keys([each.settings for each in kin])
        own = " ".join([own, *(setting_name(key, family.settings) for key in keys)])
        distinct.append(own if len(kin) == len(equals) else f"{own} ({family.first.sweep})")
    return distinct


def ends(
    builder: FigureBuilder, axes: Axes, family: Family, keys: Sequence[str], pair: Pair
) -> None:
    """The last version of each condition in the plane of two metrics."""
    axes.set_ylabel(short_label(pair[1]))
    outer(axes, pair[0])
    for cell in family.cells:
        end_point(builder, axes, cell, keys, pair)

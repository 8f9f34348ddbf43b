"""Choose colour, line and marker of each condition of a page, as figures do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from rlhf_lab_analysis.comparison.cell import Cell
from rlhf_lab_analysis.plots.style import LINES
from rlhf_lab_analysis.report.groups import differing
from rlhf_lab_analysis.report.series_style import HUES, MARKERS, value_style

# Dashes of figures are in widths of the line, those of a page in pixels.
LINE_WIDTH = 2


@dataclass(frozen=True)
class PageStyle:
    """How a condition is drawn. dash: of an SVG line, "" for a whole one. marker: as in figures."""

    colour: str
    dash: str
    marker: str


def styles_of(cells: Sequence[Cell]) -> list[PageStyle]:
    """A style for each condition: that of the first part that distinguishes conditions, with the
    marker of the second. Where three do, lines and markers go on to the next that are free, so that
    no two of an environment are drawn alike."""
    keys = differing(cells)[:2]
    styles: list[PageStyle] = []
    taken: set[tuple[str, PageStyle]] = set()
    for cell in cells:
        style = style_of(cell, keys)
        for step in range(len(LINES) * len(MARKERS)):
            if (cell.env, style) not in taken:
                break
            line, marker = LINES[step % len(LINES)], step // len(LINES) + step
            style = replace(style, dash=dash_of(line), marker=MARKERS[marker % len(MARKERS)])
        taken.add((cell.env, style))
        styles.append(style)
    return styles


def style_of(cell: Cell, keys: Sequence[str]) -> PageStyle:
    """As a figure draws the first of these parts, with the marker of the second."""
    parts = [value_style(key, cell.parts[key]) for key in keys if cell.parts.get(key) is not None]
    if not parts:
        return PageStyle(HUES[0], "", MARKERS[0])
    return PageStyle(parts[0].colour, dash_of(parts[0].line), parts[-1].marker)


def dash_of(line: Any) -> str:
    """matplotlib's line style as stroke-dasharray."""
    return "" if line == "-" else " ".join(f"{LINE_WIDTH * part:g}" for part in line[1])

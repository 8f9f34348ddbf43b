"""Which colour, line and marker stands for which condition: those that it has in figures too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from analysis.figures.series_style import HUES, LINES, MARKERS, combined, value_style
from analysis.report.groups import Group, differing

# Dashes of figures are in widths of the line, those of a page in pixels.
LINE_WIDTH = 2


@dataclass(frozen=True)
class Drawn:
    """How a condition is drawn. dash: of an SVG line, "" for a whole one. marker: as in figures."""

    colour: str
    dash: str
    marker: str


def styles_of(groups: Sequence[Group]) -> list[Drawn]:
    """A look for each group: that of the first part that tells groups apart, with the marker of the
    second. Where three do, lines and markers go on to the next that are free, so that no two of an
    environment are drawn alike."""
    told = differing(groups)
    found: list[Drawn] = []
    taken: set[tuple[str, Drawn]] = set()
    for group in groups:
        chosen = style_of_group(group, told)
        for step in range(len(LINES) * len(MARKERS)):
            if (group.env, chosen) not in taken:
                break
            chosen = replace(
                chosen,
                dash=dash_of(LINES[step % len(LINES)]),
                marker=MARKERS[(step // len(LINES) + step) % len(MARKERS)],
            )
        taken.add((group.env, chosen))
        found.append(chosen)
    return found


def style_of_group(group: Group, told: Sequence[str]) -> Drawn:
    """As a figure draws the first part that is told, with the marker of the second."""
    parts = [
        value_style(key, group.parts[key]) for key in told[:2] if group.parts.get(key) is not None
    ]
    if not parts:
        return Drawn(HUES[0], "", MARKERS[0])
    made = combined(parts[0], parts[1]) if len(parts) > 1 else parts[0]
    return Drawn(made.colour, dash_of(made.line), made.marker)


def dash_of(line: Any) -> str:
    """matplotlib's line style as stroke-dasharray."""
    return "" if line == "-" else " ".join(f"{LINE_WIDTH * part:g}" for part in line[1])

"""Build a figure, and collect its data and caption while it is drawn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from textwrap import wrap
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rlhf_lab_analysis.comparison.cell import Cell
from rlhf_lab_analysis.figures.axis_limits import AxisLimits
from rlhf_lab_analysis.figures.captions import COLUMNS, caption_of, last_numbers, warning_texts
from rlhf_lab_analysis.figures.style import GREY, plain
from rlhf_lab_analysis.ranges import span_text
from rlhf_lab_analysis.statistics.results import FEW_SEEDS
from rlhf_lab_analysis.words import in_words

# Inches of a line of a legend.
LEGEND_LINE = 0.14
# Of texts above it: size of letters in points, and how many of them an inch holds.
NOTE_SIZE, NOTE_LETTERS = 6, 19


@dataclass(frozen=True, eq=False)
class DrawnFigure:
    """A figure, exactly what is drawn in it, its caption with the numbers, and what is doubtful.

    data: a row for each point, the ends of its interval, n, and the seeds.
    """

    figure: Figure
    data: pd.DataFrame
    caption: str
    warnings: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class LegendEntry:
    """A sample of a line or marker, and the seeds of each condition that it stands for."""

    handle: Any
    counts: tuple[int, ...]
    rank: tuple[Any, ...]


@dataclass(eq=False)
class FigureBuilder:
    """Collects the rows, conditions and warnings of a figure.

    group: the row of panels that is being drawn. lists_last: whether the caption lists the last
    point of each condition. has_intervals: whether anything in it depends on how many seeds there
    are. seeds: of each condition by its name. above_legend: lines that explain marks.
    """

    figure: Figure
    group: str = ""
    lists_last: bool = True
    has_intervals: bool = True
    rows: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    entries: dict[str, LegendEntry] = field(default_factory=dict)
    seeds: dict[str, tuple[int, ...]] = field(default_factory=dict)
    warnings: dict[str, list[str]] = field(default_factory=dict)
    limits: AxisLimits = field(default_factory=AxisLimits)
    above_legend: list[str] = field(default_factory=list)

    def count_runs(self, cell: Cell, warnings: Sequence[str] = ()) -> None:
        """Count the runs of a condition that is drawn, and what is doubtful about them."""
        name = f"{cell.condition} [{cell.env}]"
        self.seeds[name] = cell.seeds
        for text in warnings:
            names = self.warnings.setdefault(text, [])
            names += [name] if name not in names else []

    def warn(self, *texts: str) -> None:
        for text in texts:
            self.warnings.setdefault(text, [])

    def add_to_legend(self, name: str, handle: Any, seeds: int, rank: tuple[Any, ...] = ()) -> None:
        """Add a name to the legend, which is in the order of rank."""
        before = self.entries[name].counts if name in self.entries else ()
        self.entries[name] = LegendEntry(handle, (*before, seeds), rank)

    def add(self, cell: Cell, **values: Any) -> None:
        """Keep a point that is drawn."""
        origin = {"group": self.group, "sweep": cell.sweep, "env": cell.env}
        self.rows.append(origin | values)

    def legend_entries(self) -> tuple[list[Any], list[str]]:
        """Handles and names with their n, in order."""
        ordered = sorted(self.entries.items(), key=lambda item: item[1].rank)
        names = [
            f"{in_words(plain(name))} (n={span_text(entry.counts)})" for name, entry in ordered
        ]
        return [entry.handle for _, entry in ordered], names

    def legend(self) -> None:
        """All names below the panels, each once, with its n."""
        if not self.entries:
            return
        handles, names = self.legend_entries()
        self.figure.legend(
            handles, names, loc="outside lower center", ncols=self.legend_columns(names),
            handlelength=3, columnspacing=1.2, title="\n".join(self.above_legend),
            title_fontsize=NOTE_SIZE,
        )  # fmt: skip

    def legend_columns(self, names: Sequence[str]) -> int:
        """As many as the width of the figure has room for."""
        fits = max(1, int(self.figure.get_figwidth() * 20 // (max(map(len, names)) + 8)))
        return min(fits, len(names))

    def legend_height(self) -> float:
        """Inches of the legend, for figures that are to be as much higher."""
        _, names = self.legend_entries()
        lines = math.ceil(len(names) / self.legend_columns(names)) if names else 0
        return LEGEND_LINE * (lines + len(self.above_legend))

    def explain(self, texts: Sequence[str]) -> None:
        """Put texts above the legend, on as many lines as the width of the figure needs."""
        letters = int(NOTE_LETTERS * self.figure.get_figwidth())
        self.above_legend += [line for text in texts for line in wrap(text, letters)]

    def legend_in(self, axes: Axes) -> None:
        """The names so far, in a panel of their own; those that follow begin anew."""
        axes.legend(*self.legend_entries(), loc="center left", borderpad=0)
        self.entries.clear()

    def build(self, caption: str) -> DrawnFigure:
        """The finished figure. Too few seeds are noted in the figure itself."""
        fewest = min(map(len, self.seeds.values()), default=FEW_SEEDS)
        if self.has_intervals and fewest < FEW_SEEDS:
            words = "n = 1: no interval" if fewest == 1 else f"n = {fewest}: rough intervals"
            self.figure.suptitle(words, fontsize=6.5, color=GREY, x=0.99, ha="right")
        notes, warnings = list(self.notes), warning_texts(self.warnings)
        if self.limits.apply():
            notes.append("Intervals that leave a panel are cut; the data have their ends.")
        if self.lists_last and self.has_intervals and (last := "; ".join(last_numbers(self.rows))):
            notes.append(f"At the last version: {last}.")
        notes += [f"Warning: {text}." for text in warnings]
        self.legend()
        data = pd.DataFrame(self.rows)
        data = data[[name for name in COLUMNS if name in data]]
        return DrawnFigure(
            self.figure, data, caption_of(caption, self.rows, self.seeds, notes), warnings
        )

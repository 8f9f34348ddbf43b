"""A figure while it is drawn: what is put on it is kept as data, and told in its caption."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.comparison.selection import Cell
from analysis.figures.captions import COLUMNS, last_numbers, seeds_told, warnings_told
from analysis.figures.framing import Framing
from analysis.figures.names import label
from analysis.figures.style import GREY, plain
from analysis.statistics.results import FEW_SEEDS


@dataclass(frozen=True, eq=False)
class Drawn:
    """A figure, exactly what is drawn in it, its caption with the numbers, and what is doubtful.

    data: a row for each point, the ends of its interval, n, and the seeds.
    """

    figure: Figure
    data: pd.DataFrame
    caption: str
    warnings: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Named:
    """A sample of a line or marker, and the seeds of each condition that it stands for."""

    handle: Any
    counts: tuple[int, ...]
    rank: tuple[Any, ...]

    @property
    def n(self) -> str:
        least, most = min(self.counts), max(self.counts)
        return str(least) if least == most else f"{least} to {most}"


@dataclass(eq=False)
class Sheet:
    """Collects the rows, conditions and warnings of a figure.

    shows: the caption's first words. group: the row of panels that is being drawn. tells_last:
    whether the caption tells the last point of each condition. has_intervals: whether anything in
    it depends on how many seeds there are.
    """

    figure: Figure
    shows: str
    group: str = ""
    tells_last: bool = True
    has_intervals: bool = True
    rows: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    handles: dict[str, Named] = field(default_factory=dict)
    seeds: dict[str, tuple[int, ...]] = field(default_factory=dict)
    told: dict[str, list[str]] = field(default_factory=dict)
    framing: Framing = field(default_factory=Framing)

    def runs(self, cell: Cell, warnings: Sequence[str] = ()) -> None:
        """Count the runs of a condition that is drawn, and what is doubtful about them."""
        name = f"{cell.condition} [{cell.env}]"
        self.seeds[name] = cell.seeds
        for text in warnings:
            held = self.told.setdefault(text, [])
            held += [name] if name not in held else []

    def warn(self, *texts: str) -> None:
        for text in texts:
            self.told.setdefault(text, [])

    def name(self, shown: str, handle: Any, seeds: int, rank: tuple[Any, ...] = ()) -> None:
        """Take a name into the legend, which is in the order of rank."""
        held = self.handles.get(shown)
        counts = (*(held.counts if held else ()), seeds)
        self.handles[shown] = Named(handle, counts, rank)

    def add(self, cell: Cell | None, **values: Any) -> None:
        """Keep a point that is drawn."""
        place = {} if cell is None else {"sweep": cell.sweep, "env": cell.env}
        self.rows.append({"group": self.group, **place, **values})

    def legend(self) -> None:
        """All names below the panels, each once, with its n."""
        if not self.handles:
            return
        held = sorted(self.handles.items(), key=lambda item: item[1].rank)
        names = [f"{plain(name)} (n={named.n})" for name, named in held]
        fits = max(1, int(self.figure.get_figwidth() * 20 // (max(map(len, names)) + 8)))
        self.figure.legend(
            [named.handle for _, named in held],
            names,
            loc="outside lower center",
            ncols=min(fits, len(names)),
            handlelength=3,
            columnspacing=1.2,
        )

    def legend_in(self, axes: Axes) -> None:
        """The names so far, in a panel of their own; those that follow begin anew."""
        held = sorted(self.handles.items(), key=lambda item: item[1].rank)
        names = [f"{plain(name)} (n={named.n})" for name, named in held]
        axes.legend([named.handle for _, named in held], names, loc="center left", borderpad=0)
        self.handles.clear()

    def drawn(self) -> Drawn:
        """The finished figure. Too few seeds are told in the figure itself."""
        fewest = min(map(len, self.seeds.values()), default=FEW_SEEDS)
        if self.has_intervals and fewest < FEW_SEEDS:
            words = "n = 1: no interval" if fewest == 1 else f"n = {fewest}: rough intervals"
            self.figure.suptitle(words, fontsize=6.5, color=GREY, x=0.99, ha="right")
        if self.framing.fit():
            self.notes.append("Intervals that leave a panel are cut; the data have their ends.")
        self.legend()
        data = pd.DataFrame(self.rows)
        data = data[[name for name in COLUMNS if name in data]]
        return Drawn(self.figure, data, self.caption(), warnings_told(self.told))

    def caption(self) -> str:
        """What is shown, of which runs, with which intervals, the last numbers, the warnings."""
        names = [row[key] for row in self.rows for key in ("x_name", "y_name") if row.get(key)]
        shown = ", ".join(f"{label(name)} ({name})" for name in dict.fromkeys(names))
        kinds = [str(row["interval"]) for row in self.rows if row.get("interval")]
        intervals = ", ".join(dict.fromkeys(kinds))
        parts = [f"{self.shows}.", f"Shown: {shown}." if shown else "", seeds_told(self.seeds)]
        parts += [f"Intervals over seeds: {intervals}." if intervals else "", *self.notes]
        if self.tells_last and self.has_intervals and (last := "; ".join(last_numbers(self.rows))):
            parts.append(f"At the last version: {last}.")
        parts += [f"Warning: {text}." for text in warnings_told(self.told)]
        return " ".join(part for part in parts if part)

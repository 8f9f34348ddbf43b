"""A figure while it is drawn: what is put on it is kept as data, and told in its caption."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from analysis.figures.names import label
from analysis.figures.style import GREY, plain
from analysis.selection import Cell
from analysis.statistics.results import FEW_SEEDS

# What is drawn of a condition: places with intervals, or a number alone.
COLUMNS = (
    "panel condition sweep env part x_name x x_low x_high y_name y low high n seeds interval"
).split()
NO_INTERVAL = "none: one seed"


@dataclass(frozen=True, eq=False)
class Drawn:
    """A figure, exactly what is drawn in it, its caption with the numbers, and what is doubtful.

    data: a row for each point, the ends of its interval, n, and the seeds.
    """

    figure: Figure
    data: pd.DataFrame
    caption: str
    warnings: tuple[str, ...]


@dataclass(eq=False)
class Sheet:
    """Collects the rows, conditions and warnings of a figure. shows: the caption's first words."""

    figure: Figure
    shows: str
    intervals: str = "95% t intervals over seeds"
    rows: list[dict[str, Any]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    handles: dict[str, Any] = field(default_factory=dict)
    seeds: dict[str, tuple[int, ...]] = field(default_factory=dict)
    metrics: dict[str, None] = field(default_factory=dict)

    def note(self, cell: Cell | None, name: str, seeds: Sequence[int], handle: Any) -> str:
        """Take a condition into the legend under a name with its n, and return that name."""
        shown = f"{plain(name)} (n={len(seeds)})"
        self.handles.setdefault(shown, handle)
        self.seeds.setdefault(name if cell is None else f"{name} [{cell.env}]", tuple(seeds))
        return shown

    def add(self, panel: str, condition: str, cell: Cell | None, **values: Any) -> None:
        """Keep a point that is drawn."""
        place = {} if cell is None else {"sweep": cell.sweep, "env": cell.env}
        self.rows.append({"panel": panel, "condition": condition, **place, **values})
        self.metrics |= {values[key]: None for key in ("x_name", "y_name") if values.get(key)}

    def warn(self, *texts: str) -> None:
        self.warnings += [text for text in texts if text not in self.warnings]

    def legend(self, columns: int | None = None) -> None:
        """All conditions below the panels, each once."""
        if not self.handles:
            return
        longest = max(map(len, self.handles))
        fits = max(1, int(self.figure.get_figwidth() * 20 // (longest + 7)))
        self.figure.legend(
            list(self.handles.values()),
            list(self.handles),
            loc="outside lower center",
            ncols=min(columns or fits, fits, len(self.handles)),
            handlelength=2.6,
            columnspacing=1.2,
        )

    def drawn(self) -> Drawn:
        """The finished figure. Too few seeds are told in the figure itself."""
        few = {len(seeds) for seeds in self.seeds.values() if len(seeds) < FEW_SEEDS}
        if few:
            words = "1 seed: no interval" if min(few) == 1 else f"{min(few)} seeds: few"
            self.figure.suptitle(words, fontsize=6.5, color=GREY, x=0.99, ha="right")
        self.legend()
        data = pd.DataFrame(self.rows)
        data = data.reindex(columns=[name for name in COLUMNS if name in data])
        return Drawn(self.figure, data, self.caption(), tuple(self.warnings))

    def caption(self) -> str:
        """What is shown, of which runs, with which intervals, the last numbers, the warnings."""
        shown = ", ".join(f"{label(name)} ({name})" for name in self.metrics)
        parts = [f"{self.shows}.", f"Shown: {shown}." if shown else "", seeds_told(self.seeds)]
        parts += [f"Intervals: {self.intervals}." if self.intervals else "", *self.notes]
        if told := "; ".join(last_numbers(self.rows)):
            parts.append(f"Last points: {told}.")
        if self.warnings:
            parts.append("Warnings: " + "; ".join(self.warnings) + ".")
        return " ".join(part for part in parts if part)


def seeds_told(held: Mapping[str, tuple[int, ...]]) -> str:
    """How many seeds stand behind each condition, and which; once if all have the same."""
    if not held:
        return ""
    runs = sum(map(len, held.values()))
    if len(set(held.values())) == 1:
        seeds = next(iter(held.values()))
        return f"{runs} runs: {len(held)} conditions with n = {len(seeds)} ({listed(seeds)}) each."
    each = "; ".join(f"{name}: n = {len(s)} ({listed(s)})" for name, s in held.items())
    return f"{runs} runs of {len(held)} conditions, {each}."


def listed(seeds: Sequence[int]) -> str:
    return f"seed{'' if len(seeds) == 1 else 's'} {', '.join(map(str, seeds))}"


def last_numbers(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The last point of each condition in each panel: `ppo N=1: gold win-rate 0.5 [0.4, 0.6]`."""
    last = {
        (row["panel"], row["condition"], row.get("part")): row for row in rows if "y_name" in row
    }
    told: dict[tuple[Any, ...], str] = {}
    for row in last.values():
        where = f" [{row['env']}]" if row.get("env") else ""
        key = (row["condition"], row.get("env"), row.get("part"), row["y_name"], row["y"])
        part = f", {row['part']}" if row.get("part") else ""
        told.setdefault(
            key, f"{row['condition']}{where}{part}: {label(row['y_name'])} {number(row)}"
        )
    return list(told.values())


def number(row: Mapping[str, Any]) -> str:
    """A value with its interval, where it has one."""
    low, high = row.get("low", math.nan), row.get("high", math.nan)
    if math.isnan(low) or math.isnan(high):
        return f"{row['y']:.3g}"
    return f"{row['y']:.3g} [{low:.3g}, {high:.3g}]"

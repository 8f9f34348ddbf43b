"""Of which runs a table is: said in its caption."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from analysis.comparison.selection import Cell, Selection
from analysis.statistics.results import Method, Options
from analysis.tables.table import count

SHOWN = 3


def runs_told(cells: Sequence[Cell]) -> str:
    """Such as `20 runs of 4 conditions in tldr_nano-nano_s, seeds 1, 2, 3, 4, 5 each`."""
    runs = sum(len(cell.seeds) for cell in cells)
    places = ", ".join(dict.fromkeys(cell.env for cell in cells))
    return f"{count(runs, 'run')} of {count(len(cells), 'condition')} in {places}, " + (
        seeds_told(cells)
    )


def seeds_told(cells: Sequence[Cell]) -> str:
    """The seeds of all conditions, or how they differ."""
    every = list(dict.fromkeys(cell.seeds for cell in cells))
    if len(every) == 1:
        each = " each" if len(cells) > 1 else ""
        noun = "seed" if len(every[0]) == 1 else "seeds"
        return f"{noun} {listed(every[0])}{each}"
    seeds = sorted({seed for held in every for seed in held})
    sizes = sorted({len(held) for held in every})
    span = str(sizes[0]) if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
    return f"seeds {listed(seeds)}, of which a condition has {span}"


def listed(values: Iterable[object]) -> str:
    return ", ".join(map(str, values))


def interval_told(options: Options, of_shares: bool = False) -> str:
    """of_shares: whether some numbers may be shares, whose t intervals are made on log odds."""
    is_changed = of_shares and options.method is Method.t
    told = f"{options.text} interval over seeds"
    return f"{told}, which is made on log odds for shares" if is_changed else told


def left_out_told(selection: Selection) -> tuple[str, ...]:
    """How many runs do not count, and the first of them; the run list has all."""
    lines = [line.removeprefix("left out: ") for line in selection.left_out]
    if not lines:
        return ()
    more = f"; and {len(lines) - SHOWN} more" if len(lines) > SHOWN else ""
    return (f"{count(len(lines), 'run')} not counted: {'; '.join(lines[:SHOWN])}{more}",)


def each_once(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts))

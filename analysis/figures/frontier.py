"""Win-rate against KL: each run's frontier, and how far conditions are apart at equal KL."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes

from analysis.comparison.equal_kl import Apart, Plane, at_equal_kl, frontiers
from analysis.comparison.selection import Cell
from analysis.figures.blocks import bars, look_of, outer, to_legend
from analysis.figures.courses import options_for
from analysis.figures.families import Family
from analysis.figures.looks import GREY
from analysis.figures.names import KL, WIN_RATE, label
from analysis.figures.panels import MANY, in_rows
from analysis.figures.pools import baseline, keys_of, names_of
from analysis.figures.sheet import Drawn, Sheet
from analysis.figures.style import ROW, SMALL_ROW, page
from analysis.statistics.contrasts import difference, in_pairs
from analysis.statistics.results import Estimate

PLANE = Plane(WIN_RATE, KL)
DISTANCE = "win-rate at equal KL, less that of the first"
SEEDS = 2


def frontier(families: Sequence[Family]) -> Drawn:
    """The best win-rate up to each KL, and how far from the freshest condition at equal KL."""
    shows = "Best gold win-rate at each KL or below it, run by run, and the distance at equal KL"
    height = ROW if len(families) < MANY else SMALL_ROW
    figure, axes = page(len(families), 2, height=height, sharex="col")
    # Rows of intervals have names of their own, so that win-rates alone have one scale.
    for below in axes[1:, 0]:
        below.sharey(axes[0, 0])
    sheet = Sheet(figure, shows)
    sheet.tells_last = False
    for family, row in in_rows(sheet, families, axes.tolist(), ("algo", "model")):
        first, names = baseline(family), names_of(family)
        for cell, name in zip(family.cells, names, strict=True):
            lines(sheet, row[0], cell, name, family)
        rows = [
            (name, cell, at_equal_kl(cell, first, PLANE))
            for name, cell in zip(names, family.cells, strict=True)
            if cell is not first
        ]
        distances(sheet, row[1], rows, family)
        row[1].axvline(0, color=GREY, lw=0.7)
        row[1].set_title(f"less {names[family.cells.index(first)]}, in pairs")
        row[0].set_ylabel(label(WIN_RATE))
        outer(row[0], KL)
        outer(row[1], "difference at equal KL")
    sheet.notes.append(
        "Version 0 is left out: nothing was evaluated between it and the next one. Distances are "
        "means over the KL that both runs of a seed have in common."
    )
    return sheet.drawn()


def lines(sheet: Sheet, axes: Axes, cell: Cell, name: str, family: Family) -> None:
    """The frontier of each run, over the KL that it visited."""
    style = look_of(cell, keys_of(family))
    sheet.runs(cell)
    to_legend(sheet, cell, keys_of(family)[:2])
    for seed, curve in frontiers(cell, PLANE).items():
        axes.plot(curve.x_P, curve.y_P, color=style.colour, linestyle=style.line, lw=0.6)
        axes.plot(
            curve.x_P[-1], curve.y_P[-1], color=style.colour, marker=style.marker, ms=2.6, ls="none"
        )
        for kl, quality in zip(curve.x_P, curve.y_P, strict=True):
            sheet.framing.see(axes, "y", WIN_RATE, (quality, quality, quality))
            sheet.add(
                cell, condition=name, part="frontier", x_name=KL, x=float(kl), y_name=WIN_RATE,
                y=float(quality), n=1, seeds=str(seed),
            )  # fmt: skip


def distances(
    sheet: Sheet, axes: Axes, rows: Sequence[tuple[str, Cell, dict[int, Apart]]], family: Family
) -> None:
    """A row for each condition but the first: the mean distance of its seeds, with its interval."""
    held = []
    for name, cell, found in rows:
        if len(found) < SEEDS:
            sheet.warn(f"{name}: {len(found)} seeds have KL in common with the first: no distance")
            continue
        if len(found) < len(cell.seeds):
            sheet.warn(f"{name}: {len(found)} of {len(cell.seeds)} seeds have KL in common")
        held.append((name, cell, found, mean_of(found)))
    bars(
        axes,
        [f"{name} (n={len(found)})" for name, _, found, _ in held],
        [made for *_, made in held],
        [look_of(cell, keys_of(family)) for _, cell, _, _ in held],
    )
    for name, cell, found, made in held:
        sheet.runs(cell, made.warnings)
        sheet.framing.see(axes, "x", DISTANCE, (made.point, made.low, made.high))
        options = made.basis.options
        sheet.add(
            cell, condition=name, part="distance at equal KL", y_name=DISTANCE, y=made.point,
            low=made.low, high=made.high, n=len(found), seeds=" ".join(map(str, found)),
            interval=options.text,
            x_low=min(one.low for one in found.values()),
            x_high=max(one.high for one in found.values()), x_name=KL,
        )  # fmt: skip
        where = f"{sheet.group}, {name}" if sheet.group else name
        sheet.notes.append(f"{where}: {made.text()}.")


def mean_of(found: dict[int, Apart]) -> Estimate:
    """The mean over seeds of the distances, with its interval."""
    ours = {seed: one.distance for seed, one in found.items()}
    return difference(in_pairs(ours, dict.fromkeys(ours, 0.0)), options_for(DISTANCE, []))

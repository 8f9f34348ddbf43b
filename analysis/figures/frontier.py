"""Draw win-rate against KL: each run's frontier, and differences of conditions at equal KL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes

from rlhf_lab_analysis.comparison.equal_kl import Apart, Plane, at_equal_kl, frontiers
from rlhf_lab_analysis.comparison.families import Family
from rlhf_lab_analysis.comparison.selection import Cell
from rlhf_lab_analysis.figures.declaration import figure
from rlhf_lab_analysis.figures.figure_builder import FigureBuilder
from rlhf_lab_analysis.figures.grouping import baseline, by_algo, keys_of, names_of
from rlhf_lab_analysis.figures.interval_rows import bars, record_estimate
from rlhf_lab_analysis.figures.mean_curves import options_for
from rlhf_lab_analysis.figures.panels import MANY, in_rows
from rlhf_lab_analysis.figures.primitives import add_to_legend, outer, style_of
from rlhf_lab_analysis.figures.requirement import SEEDS, any_two
from rlhf_lab_analysis.figures.series_style import GREY
from rlhf_lab_analysis.figures.style import ROW, SMALL_ROW, page
from rlhf_lab_analysis.statistics.contrasts import difference, in_pairs
from rlhf_lab_analysis.statistics.results import Estimate
from rlhf_lab_analysis.words import KL, WIN_RATE, label

PLANE = Plane(WIN_RATE, KL)
DISTANCE = "win-rate at equal KL, less that of the first"


@figure(
    "frontier",
    "best win-rate at each KL, and the distance at equal KL",
    "Best gold win-rate at each KL or below it, run by run, and the distance at equal KL",
    any_two(WIN_RATE, KL, grouping=by_algo),
)
def frontier(families: Sequence[Family]) -> FigureBuilder:
    height = ROW if len(families) < MANY else SMALL_ROW
    figure_, axes = page(len(families), 2, height=height, sharex="col")
    # Rows of intervals have names of their own, so that win-rates alone have one scale.
    for below in axes[1:, 0]:
        below.sharey(axes[0, 0])
    builder = FigureBuilder(figure_, lists_last=False)
    for family, row in in_rows(builder, families, axes.tolist(), ("algo", "model")):
        first, names = baseline(family), names_of(family)
        named = dict(zip(names, family.cells, strict=True))
        for name, cell in named.items():
            draw_frontiers(builder, row[0], cell, name, keys_of(family))
        others = {name: cell for name, cell in named.items() if cell is not first}
        draw_distances(builder, row[1], others, first, keys_of(family))
        row[1].axvline(0, color=GREY, lw=0.7)
        row[1].set_title(f"less {names[family.cells.index(first)]}, in pairs")
        row[0].set_ylabel(label(WIN_RATE))
        outer(row[0], KL)
        outer(row[1], "difference at equal KL")
    builder.notes.append(
        "Version 0 is left out: nothing was evaluated between it and the next one. Distances are "
        "means over the KL that both runs of a seed have in common."
    )
    return builder


def draw_frontiers(
    builder: FigureBuilder, axes: Axes, cell: Cell, name: str, keys: Sequence[str]
) -> None:
    """The frontier of each run, over the KL that it visited."""
    style = style_of(cell, keys)
    builder.count_runs(cell)
    add_to_legend(builder, cell, keys)
    for seed, curve in frontiers(cell, PLANE).items():
        axes.plot(curve.x_P, curve.y_P, color=style.colour, linestyle=style.line, lw=0.6)
        axes.plot(
            curve.x_P[-1], curve.y_P[-1], color=style.colour, marker=style.marker, ms=2.6, ls="none"
        )
        for kl, quality in zip(curve.x_P, curve.y_P, strict=True):
            builder.limits.include(axes, "y", WIN_RATE, (quality, quality, quality))
            builder.add(
                cell, condition=name, part="frontier", x_name=KL, x=float(kl), y_name=WIN_RATE,
                y=float(quality), n=1, seeds=str(seed),
            )  # fmt: skip


def draw_distances(
    builder: FigureBuilder,
    axes: Axes,
    others: Mapping[str, Cell],
    first: Cell,
    keys: Sequence[str],
) -> None:
    """A row for each condition but the first: the mean distance of its seeds, with its interval."""
    rows = []
    for name, cell in others.items():
        by_seed = at_equal_kl(cell, first, PLANE)
        if len(by_seed) < SEEDS:
            builder.warn(
                f"{name}: {len(by_seed)} seeds have KL in common with the first: no distance"
            )
            continue
        if len(by_seed) < len(cell.seeds):
            builder.warn(f"{name}: {len(by_seed)} of {len(cell.seeds)} seeds have KL in common")
        rows.append((name, cell, by_seed, mean_of(by_seed)))
    names = [f"{name} (n={len(by_seed)})" for name, _, by_seed, _ in rows]
    bars(axes, names, [row[-1] for row in rows], [style_of(row[1], keys) for row in rows])
    for name, cell, by_seed, estimate in rows:
        record_estimate(
            builder, axes, cell, estimate, [*by_seed], condition=name,
            part="distance at equal KL", y_name=DISTANCE, x_name=KL,
            x_low=min(one.low for one in by_seed.values()),
            x_high=max(one.high for one in by_seed.values()),
        )  # fmt: skip
        where = f"{builder.group}, {name}" if builder.group else name
        builder.notes.append(f"{where}: {estimate.text()}.")


def mean_of(by_seed: dict[int, Apart]) -> Estimate:
    """The mean over seeds of the distances, with its interval."""
    ours = {seed: one.distance for seed, one in by_seed.items()}
    return difference(in_pairs(ours, dict.fromkeys(ours, 0.0)), options_for(DISTANCE))

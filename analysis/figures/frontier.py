"""Draw win-rate against KL: each run's frontier, and differences of conditions at equal KL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import fill, wrap

from matplotlib.axes import Axes

from rlhf_lab_analysis.comparison.cell import Cell
from rlhf_lab_analysis.comparison.equal_kl import Apart, Plane, at_equal_kl, frontiers
from rlhf_lab_analysis.comparison.families import Family
from rlhf_lab_analysis.figures.aggregate_bars import shown_names
from rlhf_lab_analysis.figures.declaration import figure
from rlhf_lab_analysis.figures.figure_builder import FigureBuilder
from rlhf_lab_analysis.figures.grouping import baseline, by_algo, keys_of, names_of
from rlhf_lab_analysis.figures.interval_rows import bars, record_estimate
from rlhf_lab_analysis.figures.mean_curves import options_for
from rlhf_lab_analysis.figures.panels import in_rows
from rlhf_lab_analysis.figures.primitives import add_to_legend, outer, style_of
from rlhf_lab_analysis.figures.requirement import SEEDS, any_two
from rlhf_lab_analysis.figures.series_style import GREY
from rlhf_lab_analysis.figures.style import SMALL_ROW, page
from rlhf_lab_analysis.figures.tick_room import roomy_ticks
from rlhf_lab_analysis.statistics.contrasts import difference, in_pairs
from rlhf_lab_analysis.statistics.results import Estimate
from rlhf_lab_analysis.words import KL, WIN_RATE, in_words, label

PLANE = Plane(WIN_RATE, KL)
DISTANCE = "win-rate at equal KL, less that of the first"
# Inches of a row of an interval, of each further line of its name, and of what is around the rows.
LINE, MORE_LINE, AROUND = 0.16, 0.11, 0.55
# Letters of a line of a row's name, which leaves both panels room, and of a title across them.
LETTERS, TITLE_LETTERS = 30, 96


@dataclass(frozen=True, eq=False)
class Distances:
    """A condition, and its distance from the first by seed, of seeds with KL in common."""

    name: str
    cell: Cell
    by_seed: dict[int, Apart]


@figure(
    "frontier",
    "best win-rate at each KL, and the distance at equal KL",
    "Best gold win-rate at each KL or below it, run by run, and the distance at equal KL",
    any_two(WIN_RATE, KL, grouping=by_algo),
    page_of=lambda family: family.first.sweep,
)
def frontier(families: Sequence[Family]) -> FigureBuilder:
    found = [distances_of(family) for family in families]
    figure_, axes = page(len(families), 2, height=[*map(row_height, found)], sharex="col")
    # Rows of intervals have names of their own, so that win-rates alone have one scale.
    for below in axes[1:, 0]:
        below.sharey(axes[0, 0])
    builder = FigureBuilder(figure_, lists_last=False)
    rows = in_rows(builder, families, axes.tolist(), ("algo", "model"))
    for (family, row), others in zip(rows, found, strict=True):
        names = names_of(family)
        for name, cell in zip(names, family.cells, strict=True):
            draw_frontiers(builder, row[0], cell, name, keys_of(family))
        draw_distances(builder, row[1], others, keys_of(family))
        row[1].axvline(0, color=GREY, lw=0.7)
        first = in_words(names[family.cells.index(baseline(family))])
        row[0].set_title(fill(f"{in_words(builder.group)}, against {first}", TITLE_LETTERS))
        row[0].set_ylabel(label(WIN_RATE))
        outer(row[0], KL)
        outer(row[1], "difference at equal KL, in pairs")
    # Names of rows take their part of the room, and what the legend takes would be the panels'.
    for panel in axes[-1]:
        roomy_ticks(panel)
    figure_.set_figheight(figure_.get_figheight() + builder.legend_height())
    builder.notes.append(
        "Version 0 is left out: nothing was evaluated between it and the next one. Distances are "
        "means over the KL that both runs of a seed have in common."
    )
    return builder


def distances_of(family: Family) -> list[Distances]:
    """Those of all conditions but the first."""
    first = baseline(family)
    return [
        Distances(name, cell, at_equal_kl(cell, first, PLANE))
        for name, cell in zip(names_of(family), family.cells, strict=True)
        if cell is not first
    ]


def with_interval(found: Sequence[Distances]) -> list[Distances]:
    """Those of enough seeds."""
    return [one for one in found if len(one.by_seed) >= SEEDS]


def texts_of(found: Sequence[Distances]) -> list[str]:
    """Names of rows, on as many lines as they take."""
    if not found:
        return []
    counted = zip(shown_names([one.name for one in found]), found, strict=True)
    texts = (f"{name} (n={len(one.by_seed)})" for name, one in counted)
    return ["\n".join(wrap(text, LETTERS)) for text in texts]


def row_height(found: Sequence[Distances]) -> float:
    """Inches of a row of panels, in which names of rows do not touch."""
    texts = texts_of(with_interval(found))
    most = max((text.count("\n") for text in texts), default=0)
    return max(SMALL_ROW, AROUND + (LINE + MORE_LINE * most) * len(texts))


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
    builder: FigureBuilder, axes: Axes, found: Sequence[Distances], keys: Sequence[str]
) -> None:
    """A row for each condition but the first: the mean distance of its seeds, with its interval."""
    for one in found:
        common, seeds = len(one.by_seed), len(one.cell.seeds)
        if common < SEEDS:
            builder.warn(
                f"{one.name}: {common} seeds have KL in common with the first: no distance"
            )
        elif common < seeds:
            builder.warn(f"{one.name}: {common} of {seeds} seeds have KL in common")
    rows = with_interval(found)
    estimates = [mean_of(one.by_seed) for one in rows]
    texts = texts_of(rows)
    bars(axes, texts, estimates, [style_of(one.cell, keys) for one in rows])
    # Names of rows are on one line elsewhere.
    axes.set_yticks(range(len(texts)), texts)
    if not rows:
        at = axes.transAxes
        axes.text(0.5, 0.5, "no KL in common", transform=at, ha="center", color=GREY)
    for one, estimate in zip(rows, estimates, strict=True):
        record_estimate(
            builder, axes, one.cell, estimate, [*one.by_seed], condition=one.name,
            part="distance at equal KL", y_name=DISTANCE, x_name=KL,
            x_low=min(apart.low for apart in one.by_seed.values()),
            x_high=max(apart.high for apart in one.by_seed.values()),
        )  # fmt: skip
        where = f"{builder.group}, {one.name}" if builder.group else one.name
        builder.notes.append(f"{where}: {estimate.text()}.")


def mean_of(by_seed: dict[int, Apart]) -> Estimate:
    """The mean over seeds of the distances, with its interval."""
    ours = {seed: one.distance for seed, one in by_seed.items()}
    return difference(in_pairs(ours, dict.fromkeys(ours, 0.0)), options_for(DISTANCE))

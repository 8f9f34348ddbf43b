"""Draw the law of win-rate over compute: curves with the fitted law, and changes of its ceiling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes

from rlhf_lab_analysis.comparison.cell import Cell
from rlhf_lab_analysis.comparison.families import Family
from rlhf_lab_analysis.figures.declaration import figure
from rlhf_lab_analysis.figures.figure_builder import FigureBuilder
from rlhf_lab_analysis.figures.grouping import baseline, by_algo, keys_of, names_of
from rlhf_lab_analysis.figures.interval_rows import bars, record_estimate
from rlhf_lab_analysis.figures.mean_curves import common, mean_curve, values_at
from rlhf_lab_analysis.figures.panels import MANY, in_rows
from rlhf_lab_analysis.figures.primitives import (
    add_to_legend,
    outer,
    record_version,
    seeds_column,
    style_of,
)
from rlhf_lab_analysis.figures.requirement import any_two
from rlhf_lab_analysis.figures.series_style import GREY
from rlhf_lab_analysis.figures.style import ROW, SMALL_ROW, page
from rlhf_lab_analysis.rounding import estimate_text, number_text
from rlhf_lab_analysis.statistics.arrays import Floats
from rlhf_lab_analysis.statistics.curves import RunCurve
from rlhf_lab_analysis.statistics.scaling import LawFit, fit_law
from rlhf_lab_analysis.statistics.scaling_effects import Prediction, compare_laws, predict
from rlhf_lab_analysis.statistics.scaling_runs import PARAMETERS, SHARES, ScalingRuns
from rlhf_lab_analysis.words import UPDATES, WIN_RATE, label

CEILING = "difference of A"
# The first of these shares of the compute that leaves points enough is fitted, the rest predicted.
PARTS = (0.5, 0.75)
FINE = 100


@dataclass(frozen=True, eq=False)
class Fitted:
    """A condition with its law, and what the first part of it predicts of the rest."""

    runs: ScalingRuns
    fit: LawFit
    prediction: Prediction | None


@figure(
    "scaling",
    "win-rate over updates with the law of scaling, and changes of its ceiling",
    "Win-rate over updates with the fitted sigmoid law, whose ceiling is A, and its ceiling less "
    "that of the first condition",
    any_two(WIN_RATE, UPDATES, grouping=by_algo),
)
def scaling(families: Sequence[Family]) -> FigureBuilder:
    height = ROW if len(families) < MANY else SMALL_ROW
    figure_, axes = page(len(families), 2, height=height, sharex="col")
    for below in axes[1:, 0]:
        below.sharey(axes[0, 0])
    builder = FigureBuilder(figure_, lists_last=False)
    for family, row in in_rows(builder, families, axes.tolist(), ("algo", "model")):
        named = dict(zip(names_of(family), family.cells, strict=True))
        fits = {name: draw_law(builder, row[0], cell, name, keys_of(family))
                for name, cell in named.items()}  # fmt: skip
        draw_changes(builder, row[1], named, fits, family)
        row[0].set_ylabel(label(WIN_RATE))
        outer(row[0], UPDATES)
        outer(row[1], CEILING)
    builder.notes.insert(
        0,
        "Lines are the law fitted to all points, pale where A is not identified; thin lines are "
        "the law of the points up to the grey line, and hollow marks those beyond, which it "
        "predicts. Beside each row what is shown at 95% for A, B and C_mid "
        "together, each row by itself.",
    )
    return builder


def runs_of(cell: Cell, x: str, y: str) -> ScalingRuns | None:
    """The curves at the versions that all seeds have; None where they are too few for the law."""
    values = values_at(cell, (x, y))
    versions = common(values)
    if len(versions) <= PARAMETERS:
        return None
    points = {seed: np.array([values[seed][version] for version in versions]) for seed in values}
    return ScalingRuns({seed: RunCurve(*each.T) for seed, each in points.items()}, SHARES)


def first_part(runs: ScalingRuns) -> Prediction | None:
    """What the first part of the compute predicts; None where no part has points enough."""
    for share in PARTS:
        fitted = min(int((curve.x_P <= share * runs.end).sum()) for curve in runs.curves.values())
        if fitted > PARAMETERS:
            return predict(runs, share)
    return None


def draw_law(
    builder: FigureBuilder, axes: Axes, cell: Cell, name: str, keys: Sequence[str]
) -> Fitted | None:
    """Means over seeds, the law through them, and what the first part of it predicts."""
    style, curve = style_of(cell, keys), mean_curve(cell, UPDATES, WIN_RATE)
    builder.count_runs(cell, curve.warnings)
    add_to_legend(builder, cell, keys)
    for index, x in enumerate(curve.x[0]):
        record_version(
            builder, axes, "y", cell, curve, index, condition=name, part="measured",
            x_name=UPDATES, x=float(x), y_name=WIN_RATE,
        )  # fmt: skip
    x, y = curve.x[0], curve.y[0]
    runs = runs_of(cell, UPDATES, WIN_RATE)
    if runs is None:
        axes.plot(x, y, color=style.colour, marker=style.marker, ls="none")
        builder.warn(f"{name}: fewer than {PARAMETERS} common versions after the start, so no law")
        return None
    made = Fitted(runs, fit_law(runs), first_part(runs))
    until = made.prediction.until if made.prediction else np.inf
    for inside, face in ((x <= until, style.colour), (x > until, "white")):
        axes.plot(
            x[inside], y[inside], color=style.colour, marker=style.marker, mfc=face, ls="none"
        )
    fine = np.linspace(0, float(x[-1]), FINE)
    alpha = 0.4 if made.fit.refused else 1.0
    axes.plot(fine, made.fit.law.at(fine), color=style.colour, ls=style.line, alpha=alpha)
    record_law(builder, cell, name, made, x)
    if made.prediction:
        beyond = fine[fine >= until]
        axes.plot(beyond, made.prediction.law.law.at(beyond), color=style.colour, lw=0.5)
        axes.axvline(until, color=GREY, lw=0.5)
    return made


def record_law(builder: FigureBuilder, cell: Cell, name: str, made: Fitted, x_P: Floats) -> None:
    """Add the law at the measured points and its parameters to the data, and these to the
    caption."""
    fit, seeds = made.fit, made.runs.seeds
    own = {"n": len(seeds), "seeds": seeds_column(seeds), "condition": name}
    for x, y in zip(x_P, fit.law.at(x_P), strict=True):
        builder.add(
            cell, **own, part="law", x_name=UPDATES, x=float(x), y_name=WIN_RATE, y=float(y)
        )
    where = f"{builder.group}, {name}" if builder.group else name
    if fit.refused:
        builder.notes.append(f"{where}: A is not identified ({'; '.join(fit.refused)}).")
        return
    named = {"A": fit.ceiling, "B": fit.exponent, "C_mid": fit.midpoint}
    for part, one in named.items():
        builder.add(
            cell, **own, part=part, y_name=part, y=one.point, low=one.low, high=one.high,
            interval=one.basis.options.text,
        )  # fmt: skip
    text = ", ".join(f"{part} {estimate_text(one)}" for part, one in named.items())
    builder.notes.append(f"{where}: {text}{held_out_text(made.prediction)}.")


def held_out_text(prediction: Prediction | None) -> str:
    """The error on held-out compute in words."""
    if prediction is None:
        return ""
    said = " by a law whose A is not identified" if prediction.law.refused else ""
    return (
        f"; error beyond {number_text(prediction.until)}{said} {number_text(prediction.error)}, "
        f"without change {number_text(prediction.unchanged)}"
    )


def draw_changes(
    builder: FigureBuilder,
    axes: Axes,
    named: dict[str, Cell],
    fits: dict[str, Fitted | None],
    family: Family,
) -> None:
    """A row for each condition but the first: its ceiling less that of the first, and what is shown
    of ceiling and speed. Conditions without a ceiling have no row."""
    first = next(name for name, cell in named.items() if cell is baseline(family))
    axes.set_title(f"A less that of {first}")
    axes.axvline(0, color=GREY, lw=0.7)
    base, rows = fits[first], []
    for name, made in fits.items():
        if name == first or made is None or base is None:
            continue
        change = compare_laws(made.runs, base.runs)
        if not change.refused:
            rows.append((name, change))
    keys = keys_of(family)
    bars(
        axes,
        [f"{name} (n={min(change.ceiling.basis.seeds)})" for name, change in rows],
        [change.ceiling for _, change in rows],
        [style_of(named[name], keys) for name, _ in rows],
    )
    for place, (name, change) in enumerate(rows):
        own = [seed for seed in named[name].seeds if seed in named[first].seeds]
        record_estimate(
            builder, axes, named[name], change.ceiling, own, condition=name, part=CEILING,
            y_name=CEILING, verdict=change.moves.value,
        )  # fmt: skip
        at = axes.get_yaxis_transform()
        axes.text(1.02, place, change.moves, transform=at, va="center", fontsize=5.5, color=GREY)
        where = f"{builder.group}, {name}" if builder.group else name
        builder.notes.append(
            f"{where} against {first}: {change.moves} (A by {estimate_text(change.ceiling)}, "
            f"C_mid times {estimate_text(change.midpoint)}, B times "
            f"{estimate_text(change.exponent)})."
        )
    if not rows:
        text = "no two ceilings are identified"
        axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color=GREY)

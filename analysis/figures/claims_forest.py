"""Draw claims and what decides them: a forest of paired effects, each with its interval."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.transforms import blended_transform_factory

from rlhf_lab_analysis.comparison.registry.answers import Number, Unit
from rlhf_lab_analysis.comparison.registry.decisions import Decision
from rlhf_lab_analysis.figures.figure_builder import DrawnFigure
from rlhf_lab_analysis.figures.interval_rows import interval_bar
from rlhf_lab_analysis.figures.series_style import BLUE, GREY, ORANGE, RED
from rlhf_lab_analysis.figures.style import DOUBLE, on_paper, page, ticks
from rlhf_lab_analysis.statistics.decisions import Verdict
from rlhf_lab_analysis.words import in_words

# Inches of a line, and those of a page above and below its lines.
LINE, AROUND = 0.148, 0.25
MOST_LINES = 57
LETTERS = 118
# How a verdict is drawn: colour and marker, which print in grey too.
LOOKS: Mapping[Verdict | None, tuple[str, str]] = {
    Verdict.holds: (BLUE, "o"),
    Verdict.negligible: (BLUE, "s"),
    Verdict.does_not_hold: (RED, "X"),
    Verdict.cannot_tell: (GREY, "D"),
    None: (GREY, "|"),
}
# What a number has in the place of a verdict that decides nothing.
BESIDE = "beside"
UNITS = {
    Unit.points: "difference of win-rates or accuracies, points",
    Unit.nats: "difference of KL to SFT, nats",
    Unit.times: "ratio",
    Unit.updates: "difference of updates",
    Unit.exponent: "exponent",
}
# Up to where the axis of a unit is linear, if an interval ends at more than FAR times as much: one
# wide interval would take the axis, and those that decide would vanish beneath their markers.
LINEAR = {Unit.points: 5.0, Unit.nats: 0.2}
FAR = 4
# Decades whose room the linear half takes; ticks, in times of it, and those between them, whose
# labels would have no room; room at an end of the axis.
LINEAR_ROOM, TICKS, BETWEEN, ROOM = 1.5, (-20, -1, 0, 1, 20), (-4, 4), 1.15
CAPTION = (
    "Claims and the differences that decide them, in pairs of stage seeds. Bars are the intervals "
    "of the verdict at the right: a circle holds, a square holds within the margin, a cross does "
    "not hold, a diamond cannot tell; a tick is shown beside the claim and decides nothing. "
    "Shaded: the margin within which differences do not matter. Levels stand at the right; the "
    "data have how many comparisons and looks each interval holds together with (family)."
)


@dataclass(frozen=True)
class Line:
    """A line of the figure: the text of a claim, or a number of it. verdict: None of a number that
    decides nothing."""

    text: str
    number: Number | None = None
    decision: Decision | None = None
    verdict: Verdict | None = None


@dataclass(frozen=True)
class Scale:
    """The x-axis of all pages of a unit, so that they can be compared. linear: up to where it is
    linear, from where it is logarithmic; None where it is linear all along."""

    unit: Unit
    ends: tuple[float, float]
    linear: float | None

    @property
    def caption(self) -> str:
        if self.linear is None:
            return CAPTION
        return f"{CAPTION} The axis is logarithmic beyond {self.linear:g} {self.unit} (dotted)."


def claims_forest(decided: Sequence[Decision]) -> list[DrawnFigure]:
    """Draw every claim with its numbers. Each unit has separate pages."""
    found = []
    for unit in UNITS:
        every = list(blocks(decided, unit))
        if every:
            scale = scale_of([line.number for lines in every for line in lines if line.number])
            found += [draw_page(lines, scale) for lines in pages(every)]
    return found


def blocks(decided: Sequence[Decision], unit: Unit) -> Iterator[list[Line]]:
    """The lines of each claim with numbers of this unit: its text, then a line for each of them.
    What is shown beside a claim may have another unit than what decides it."""
    names = list(dict.fromkeys(one.claim.name for one in decided))
    for name in names:
        of_claim = [one for one in decided if one.claim.name == name]
        numbers = [
            Line(line_text(one, number, of_claim), number, one, verdict)
            for one in of_claim
            for number, verdict in with_verdicts(one)
            if number.unit is unit
        ]
        if numbers:
            yield [*map(Line, wrap(of_claim[0].claim.row["text"], LETTERS)), *numbers]


def with_verdicts(one: Decision) -> Iterator[tuple[Number, Verdict | None]]:
    """The numbers with the verdict of those that decide it: all where values of a part are
    compared, else the first, beside which the others are shown."""
    for place, number in enumerate(one.answer.numbers):
        is_deciding = place == 0 or one.claim.part is not None
        yield number, one.answer.verdict if is_deciding else None


def span(number: Number) -> tuple[float, float, float]:
    """The number with the ends of its interval, as they are shown."""
    scale = 100 if number.unit is Unit.points else 1
    estimate = number.estimate
    return scale * estimate.point, scale * estimate.low, scale * estimate.high


def scale_of(numbers: Sequence[Number]) -> Scale:
    """The axis that shows all of these."""
    unit = numbers[0].unit
    ends = [zero_of(unit), *(end for number in numbers for end in span(number))]
    linear = LINEAR.get(unit)
    is_far = linear is not None and max(map(abs, ends)) > FAR * linear
    return Scale(unit, (min(ends), max(ends)), linear if is_far else None)


def zero_of(unit: Unit) -> float:
    """Where conditions do not differ."""
    return 1.0 if unit is Unit.times else 0.0


def line_text(one: Decision, number: Number, of_claim: Sequence[Decision]) -> str:
    """What a number compares, after what of its setting the claim's other settings do not share; of
    a claim about each algorithm always after the algorithm."""
    *others, algorithm = one.answer.setting.split(", ")
    shared = set.intersection(*({*other.answer.setting.split(", ")} for other in of_claim))
    own = [part for part in others if part not in shared]
    if "each" in one.claim.row or algorithm not in shared:
        own = [algorithm, *own]
    return in_words(": ".join(filter(None, [", ".join(own), number.label])))


def pages(every: Sequence[list[Line]]) -> list[list[Line]]:
    """Claims in order, as many on a page as fit."""
    found: list[list[Line]] = []
    for block in every:
        if not found or len(found[-1]) + len(block) > MOST_LINES:
            found.append([])
        found[-1] += block
    return found


def draw_page(lines: Sequence[Line], scale: Scale) -> DrawnFigure:
    with on_paper():
        figure, ((axes,),) = page(1, 1, DOUBLE, AROUND + LINE * len(lines))
        set_scale(axes, scale)
        rows = []
        for place, line in enumerate(lines):
            if line.number is None:
                at = blended_transform_factory(figure.transFigure, axes.transData)
                text = axes.text(0.005, place, line.text, transform=at, va="center", fontsize=6.5)
                # It may be so long that it would cross the lines of the axis.
                text.set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 0.5})
            elif line.decision is not None:
                rows.append(draw_line(axes, place, line.decision, line.number, line.verdict))
        names = [(place, line.text) for place, line in enumerate(lines) if line.number]
        axes.set_yticks([place for place, _ in names], [text for _, text in names], fontsize=6)
        axes.set_ylim(len(lines) - 0.4, -0.6)
        axes.axvline(zero_of(scale.unit), color=GREY, lw=0.7)
        axes.set_xlabel(UNITS[scale.unit])
        # Texts of claims run across it.
        axes.spines["left"].set_visible(False)
        axes.grid(axis="x", which="both", color=GREY, alpha=0.2, lw=0.5)
        data = pd.DataFrame(rows)
    return DrawnFigure(figure, data, scale.caption, ())


def set_scale(axes: Axes, scale: Scale) -> None:
    """Limits that all intervals of the unit lie in, and ticks where they have room."""
    low, high = scale.ends
    if scale.linear is None:
        room = 0.04 * (high - low)
        axes.set_xlim(low - room, high + room)
        return
    linear = scale.linear
    axes.set_xscale("symlog", linthresh=linear, linscale=LINEAR_ROOM)
    left, right = min(ROOM * low, -ROOM * linear), max(ROOM * high, ROOM * linear)
    axes.set_xlim(left, right)
    named, others = (
        [tick * linear for tick in every if left <= tick * linear <= right]
        for every in (TICKS, BETWEEN)
    )
    ticks(axes, named, between=others)
    for end in (-linear, linear):
        axes.axvline(end, color=GREY, lw=0.6, ls=":")


def draw_line(
    axes: Axes, place: int, one: Decision, number: Number, verdict: Verdict | None
) -> dict[str, object]:
    """An interval with its verdict; the row of the data. A margin is of what decides."""
    point, low, high = span(number)
    colour, marker = LOOKS[verdict]
    margin = math.nan if verdict is None else margin_of(one, number.unit)
    if verdict is not None:
        ends = (1 / (1 + margin), 1 + margin) if number.unit is Unit.times else (-margin, margin)
        axes.fill_betweenx([place - 0.5, place + 0.5], *ends, color=ORANGE, alpha=0.18, lw=0)
    interval_bar(axes, (low, high), place, colour)
    axes.plot(point, place, color=colour, marker=marker, ms=2.6)
    text = f"{verdict or BESIDE}, {number.estimate.basis.options.percent}"
    at = axes.get_yaxis_transform()
    axes.text(1.01, place, text, transform=at, va="center", fontsize=5.5, color=GREY)
    return {
        "claim": one.claim.name,
        "setting": one.answer.setting,
        "number": number.label,
        "unit": str(number.unit),
        "y": point,
        "low": low,
        "high": high,
        "interval": number.estimate.basis.options.text,
        "family": one.family,
        "margin": margin,
        "verdict": str(verdict or BESIDE),
        "runs": one.answer.runs,
    }


def margin_of(one: Decision, unit: Unit) -> float:
    """The margin of a decision as it is shown: that of a ratio is kept as a logarithm."""
    margin = one.answer.margin
    if unit is Unit.times:
        return math.expm1(margin)
    return 100 * margin if unit is Unit.points else margin

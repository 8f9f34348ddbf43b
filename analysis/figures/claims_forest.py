"""Draw claims and what decides them: a forest of paired effects, each with its interval."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
from rlhf_lab_analysis.figures.style import DOUBLE, on_paper, page
from rlhf_lab_analysis.statistics.decisions import Verdict
from rlhf_lab_analysis.words import in_words

# Inches of a line, and those of a page above and below its lines.
LINE, AROUND = 0.148, 0.25
MOST_LINES = 60
LETTERS = 118
# How a verdict is drawn: colour and marker, which print in grey too.
LOOKS = {
    Verdict.holds: (BLUE, "o"),
    Verdict.negligible: (BLUE, "s"),
    Verdict.does_not_hold: (RED, "X"),
    Verdict.cannot_tell: (GREY, "D"),
}
UNITS = {
    Unit.points: "difference of win-rates, points",
    Unit.nats: "difference of KL to SFT, nats",
    Unit.times: "ratio",
    Unit.updates: "difference of updates",
    Unit.exponent: "exponent",
}
CAPTION = (
    "Claims and the differences that decide them, in pairs of stage seeds. Bars are the intervals "
    "of the verdict at the right: a circle holds, a square holds within the margin, a cross does "
    "not hold, a diamond cannot tell. Shaded: the margin within which differences do not matter. "
    "Levels and runs are in the data and in docs/benchmark.md."
)


@dataclass(frozen=True)
class Line:
    """A line of the figure: the text of a claim, or a number of it."""

    text: str
    number: Number | None = None
    decision: Decision | None = None


def claims_forest(decided: Sequence[Decision]) -> list[DrawnFigure]:
    """The claims of each unit on pages of their own."""
    found = []
    for unit in UNITS:
        of_unit = [one for one in decided if one.claim.measure.unit is unit]
        found += [draw_page(lines, unit) for lines in pages(list(blocks(of_unit)))]
    return found


def blocks(decided: Sequence[Decision]) -> Iterator[list[Line]]:
    """The lines of each claim: its text, then a line for each number."""
    names = list(dict.fromkeys(one.claim.name for one in decided))
    for name in names:
        of_claim = [one for one in decided if one.claim.name == name]
        lines = [Line(text) for text in wrap(of_claim[0].claim.row["text"], LETTERS)]
        for one in of_claim:
            for number in one.answer.numbers:
                lines.append(Line(line_text(one, number, of_claim), number, one))
        yield lines


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


def draw_page(lines: Sequence[Line], unit: Unit) -> DrawnFigure:
    with on_paper():
        figure, ((axes,),) = page(1, 1, DOUBLE, AROUND + LINE * len(lines))
        rows = []
        for place, line in enumerate(lines):
            if line.number is None:
                at = blended_transform_factory(figure.transFigure, axes.transData)
                axes.text(0.005, place, line.text, transform=at, va="center", fontsize=6.5)
            elif line.decision is not None:
                rows.append(draw_line(axes, place, line.decision, line.number))
        names = [(place, line.text) for place, line in enumerate(lines) if line.number]
        axes.set_yticks([place for place, _ in names], [text for _, text in names], fontsize=6)
        axes.set_ylim(len(lines) - 0.4, -0.6)
        axes.axvline(1 if unit is Unit.times else 0, color=GREY, lw=0.7)
        axes.set_xlabel(UNITS[unit])
        # Texts of claims run across it.
        axes.spines["left"].set_visible(False)
        axes.grid(axis="x", color=GREY, alpha=0.2, lw=0.5)
        data = pd.DataFrame(rows)
    return DrawnFigure(figure, data, CAPTION, ())


def draw_line(axes: Axes, place: int, one: Decision, number: Number) -> dict[str, object]:
    """An interval with its verdict; the row of the data."""
    scale = 100 if number.unit is Unit.points else 1
    point, low, high = (
        scale * value
        for value in (number.estimate.point, number.estimate.low, number.estimate.high)
    )
    verdict = one.answer.verdict
    colour, marker = LOOKS[verdict]
    margin = scale * one.answer.margin
    ends = (1 / (1 + margin), 1 + margin) if number.unit is Unit.times else (-margin, margin)
    axes.fill_betweenx([place - 0.5, place + 0.5], *ends, color=ORANGE, alpha=0.18, lw=0)
    interval_bar(axes, (low, high), place, colour)
    axes.plot(point, place, color=colour, marker=marker, ms=3.2)
    text = f"{verdict}, {number.estimate.basis.options.percent}"
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
        "margin": margin,
        "verdict": str(verdict),
        "runs": one.answer.runs,
    }

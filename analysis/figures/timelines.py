"""Draw timelines of trainer and generator from the ledger's measured seconds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from rlhf_lab.experiment.planning.ideal_timeline import Work, ideal
from rlhf_lab.runs.timeline import LaneSpan
from rlhf_lab_analysis.comparison.cell import Cell
from rlhf_lab_analysis.comparison.families import Family
from rlhf_lab_analysis.figures.figure_builder import FigureBuilder
from rlhf_lab_analysis.figures.interval_rows import row_names
from rlhf_lab_analysis.figures.primitives import seeds_column
from rlhf_lab_analysis.figures.series_style import BLUE, GREEN, GREY, ORANGE
from rlhf_lab_analysis.figures.style import page, plain
from rlhf_lab_analysis.plots.round_seconds import (
    GENERATE,
    SCORE,
    SHOWN_ROUNDS,
    TRAIN,
    WAIT,
    WALL,
    bound,
    middle_rounds,
    sums_of,
    thinning_note,
)
from rlhf_lab_analysis.words import in_words

# Inches of a panel of two lanes.
LANES = 0.72
# Colour and hatching of each phase.
PHASES = {
    "generate": (BLUE, ""),
    "score": (GREEN, "...."),
    "train": (ORANGE, "////"),
    "other": (GREY, "xxxx"),
}
MODES_WITH_GENERATOR = ("async", "free", "partial")
Layout = Callable[[Cell, pd.DataFrame], list[LaneSpan]]


def span(lane: str, phase: str, start: float, end: float, number: int) -> LaneSpan:
    """A span of a round, whose samples and update have its number."""
    return LaneSpan(lane, phase, start, end, round=number, version=number)


def consecutive(rounds: pd.DataFrame) -> list[LaneSpan]:
    """The trainer does everything, one after the other; what is left of a round is other."""
    spans, now = [], 0.0
    for number, row in zip(rounds.index, rounds.to_dict("records"), strict=True):
        parts = {"generate": row[GENERATE], "score": row[SCORE], "train": row[TRAIN]}
        parts["other"] = max(0.0, row[WALL] - sum(parts.values()))
        for phase, seconds in parts.items():
            spans.append(span("trainer", phase, now, now + seconds, int(number)))
            now += seconds
    return spans


def concurrent(sums: pd.DataFrame, rounds: pd.DataFrame, staleness: int) -> list[LaneSpan]:
    """The trainer's lane as measured, beside it a generator that begins a round's samples when it
    is free and the version is there that S allows. sums: the ledger's, of all rounds."""
    spans, free = [], 0.0
    ready = sums[WALL].to_numpy()
    for index, row in zip(rounds.index, rounds.to_dict("records"), strict=True):
        number, version = int(index), int(index) - staleness - 1
        start = max(free, float(ready[version]) if version >= 0 else 0.0)
        scored, free = start + row[GENERATE], start + row[GENERATE] + row[SCORE]
        end = float(ready[number])
        update = end - row[WALL] + row[WAIT]
        trained = update + row[TRAIN]
        spans += [
            span("generator", "generate", start, scored, number),
            span("generator", "score", scored, free, number),
            span("trainer", "train", update, trained, number),
            span("trainer", "other", trained, end, number),
        ]
    first = min(each.start for each in spans)
    return [replace(each, start=each.start - first, end=each.end - first) for each in spans]


def measured_lanes(cell: Cell, sums: pd.DataFrame) -> list[LaneSpan]:
    """A few rounds of a run in the lanes that it had."""
    rounds = middle_rounds(sums)
    if cell.parts["mode"] not in MODES_WITH_GENERATOR:
        return consecutive(rounds)
    return concurrent(sums, rounds, cell.parts["max_staleness"] or 0)


def ideal_lanes(_: Cell, sums: pd.DataFrame) -> list[LaneSpan]:
    """The ideal timeline of measured seconds with a generator beside the trainer, one round
    ahead: nothing but generating, scoring and training takes time."""
    rounds = middle_rounds(sums)
    records = rounds.to_dict("records")
    generation = [[row[GENERATE] + row[SCORE]] for row in records]
    best = ideal(Work(generation, [row[TRAIN] for row in records]), 1, 1)
    spans = []
    each = zip(rounds.index, best.generate, best.train, records, strict=True)
    for index, ((start, end),), update, row in each:
        number, scored = int(index), start + row[GENERATE]
        spans += [
            span("generator", "generate", start, scored, number),
            span("generator", "score", scored, end, number),
            span("trainer", "train", *update, number),
        ]
    return spans


def draw(
    families: Sequence[Family], keys: Sequence[str], note: str, layout: Layout
) -> FigureBuilder:
    """A panel for each condition, of its first seed. note: how spans were laid out."""
    cells = [cell for family in families for cell in family.cells]
    figure, axes = page(len(cells), 1, height=LANES, sharex=True)
    builder = FigureBuilder(figure, has_intervals=False)
    phases = set()
    for cell, panel in zip(cells, axes[:, 0], strict=True):
        seed = cell.seeds[0]
        sums = sums_of(cell, seed)
        spans = layout(cell, sums)
        phases |= {each.phase for each in spans if each.end > each.start}
        draw_lanes(builder, panel, f"{cell.title(keys)}: {bound(middle_rounds(sums))}", cell, spans)
        builder.seeds[f"{cell.condition} [{cell.env}]"] = (seed,)
        builder.warn(*filter(None, [thinning_note(cell, seed)]))
    axes[-1, 0].set_xlabel("seconds since the first of these rounds")
    patches = {
        phase: Patch(color=colour, hatch=hatch, ec="white")
        for phase, (colour, hatch) in PHASES.items()
        if phase in phases
    }
    figure.legend([*patches.values()], [*patches], loc="outside lower center", ncols=len(patches))
    text = f"{SHOWN_ROUNDS} rounds from the middle of the run of the first seed. {note}"
    builder.notes.append(text)
    return builder


def draw_lanes(
    builder: FigureBuilder, axes: Axes, name: str, cell: Cell, spans: Sequence[LaneSpan]
) -> None:
    """Draw the lanes of one run, and add them to the data."""
    lanes = sorted({each.lane for each in spans})
    for each in spans:
        colour, hatch = PHASES[each.phase]
        if each.end <= each.start:
            continue
        axes.barh(
            lanes.index(each.lane), each.end - each.start, left=each.start, height=0.7,
            color=colour, hatch=hatch, edgecolor="white", linewidth=0.4,
        )  # fmt: skip
        builder.add(
            cell, condition=name, part=f"{each.lane}: {each.phase}", version=each.round,
            x_name="seconds", x_low=each.start, x_high=each.end, x=each.start,
            n=1, seeds=seeds_column(cell.seeds[:1]),
        )  # fmt: skip
    row_names(axes, lanes)
    axes.set_title(in_words(plain(name)))

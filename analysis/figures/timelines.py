"""Who worked when: lanes of trainer and generator, drawn from the ledger's measured seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from analysis.figures.blocks import row_names, seeds_text
from analysis.figures.families import Family
from analysis.figures.looks import BLUE, GREEN, GREY, ORANGE
from analysis.figures.sheet import Drawn, Sheet
from analysis.figures.style import page, plain
from analysis.selection import Cell
from rlhf_lab.schedule import Work, ideal

ROUNDS = 4
GENERATE, SCORE, TRAIN, WALL = (
    "seconds/generate", "seconds/score", "seconds/train", "seconds/wall",
)  # fmt: skip
# Inches of a panel of two lanes.
LANES = 0.72
WORK = (GENERATE, SCORE, TRAIN, WALL)
# Colour and hatching of what a lane does.
KINDS = {
    "generate": (BLUE, ""),
    "score": (GREEN, "...."),
    "train": (ORANGE, "////"),
    "other": (GREY, "xxxx"),
}
MODES_BESIDE = ("async", "free", "partial")


@dataclass(frozen=True)
class Piece:
    """What a lane did from begin to end, in seconds; round: of the samples or of the update."""

    lane: str
    kind: str
    begin: float
    end: float
    round: int


def seconds_of(cell: Cell, seed: int) -> pd.DataFrame:
    """Seconds of each round by phase: differences of the ledger's sums. Rounds without are left
    out."""
    rows = cell.recorded[seed]
    sums = rows[[name for name in WORK if name in rows]].reset_index(drop=True)
    return sums.diff().fillna(sums.iloc[:1])


def middle(seconds: pd.DataFrame) -> pd.DataFrame:
    """A few rounds from the middle of a run, where neither start nor end disturbs."""
    begin = max(1, (len(seconds) - ROUNDS) // 2)
    return seconds.iloc[begin : begin + ROUNDS]


def in_turn(rounds: pd.DataFrame) -> list[Piece]:
    """The trainer does everything, one after the other; what is left of a round is other."""
    pieces, now = [], 0.0
    for number, row in zip(rounds.index, rounds.to_dict("records"), strict=True):
        parts = {"generate": row[GENERATE], "score": row[SCORE], "train": row[TRAIN]}
        parts["other"] = max(0.0, row[WALL] - sum(parts.values()))
        for kind, lasted in parts.items():
            pieces.append(Piece("trainer", kind, now, now + lasted, int(number)))
            now += lasted
    return pieces


def beside(rounds: pd.DataFrame, staleness: int) -> list[Piece]:
    """A generator beside the trainer: each starts as soon as the staleness bound allows."""
    made = [row[GENERATE] + row[SCORE] for row in rounds.to_dict("records")]
    trained = [row[TRAIN] for row in rounds.to_dict("records")]
    best = ideal(Work([[lasted] for lasted in made], trained), max(1, staleness), 1)
    pieces = []
    each = zip(rounds.index, best.generate, best.train, rounds[GENERATE], strict=True)
    for number, chunks, update, writing in each:
        (begin, end), turn = chunks[0], chunks[0][0] + writing
        pieces.append(Piece("generator", "generate", begin, turn, int(number)))
        pieces.append(Piece("generator", "score", turn, end, int(number)))
        pieces.append(Piece("trainer", "train", *update, int(number)))
    return pieces


def lanes(sheet: Sheet, axes: Axes, name: str, cell: Cell, pieces: Sequence[Piece]) -> None:
    """Draw the lanes of one run, and keep them as data."""
    order = list(dict.fromkeys(piece.lane for piece in sorted(pieces, key=lambda p: p.lane)))
    for piece in pieces:
        colour, hatch = KINDS[piece.kind]
        if piece.end <= piece.begin:
            continue
        axes.barh(
            order.index(piece.lane), piece.end - piece.begin, left=piece.begin, height=0.7,
            color=colour, hatch=hatch, edgecolor="white", linewidth=0.4,
        )  # fmt: skip
        sheet.add(
            cell, condition=name, part=f"{piece.lane}: {piece.kind}", version=piece.round,
            x_name="seconds", x_low=piece.begin, x_high=piece.end, x=piece.begin,
            n=1, seeds=seeds_text(cell.seeds[:1]),
        )  # fmt: skip
    row_names(axes, order)
    axes.set_title(plain(name))


def sync_and_async(families: Sequence[Family]) -> Drawn:
    """Figure 2: measured rounds of sync, and of async with a generator beside the trainer."""
    return timelines(families, ("mode",), "Who works when, sync and async, in rounds of real runs")


def bound_by(families: Sequence[Family]) -> Drawn:
    """Figure 6: measured seconds of other T and K side by side: who waits for whom."""
    told = ("passes", "group_size")
    return timelines(families, told, "Who waits, by passes T and samples K, from measured seconds")


def timelines(families: Sequence[Family], told: Sequence[str], shows: str) -> Drawn:
    """A panel for each condition, of its first seed."""
    cells = [cell for family in families for cell in family.cells]
    figure, axes = page(len(cells), 1, height=LANES, sharex=True)
    sheet = Sheet(figure, shows, has_intervals=False)
    for cell, panel in zip(cells, axes[:, 0], strict=True):
        rounds = middle(seconds_of(cell, cell.seeds[0]))
        in_lanes = told != ("mode",) or cell.parts["mode"] in MODES_BESIDE
        pieces = beside(rounds, cell.parts["max_staleness"] or 1) if in_lanes else in_turn(rounds)
        lanes(sheet, panel, f"{cell.title([*told, 'model'])}: {bound(rounds)}", cell, pieces)
        sheet.seeds[f"{cell.condition} [{cell.env}]"] = cell.seeds[:1]
    axes[-1, 0].set_xlabel("seconds since the first of these rounds")
    patches = {kind: Patch(color=c, hatch=h, ec="white") for kind, (c, h) in KINDS.items()}
    kinds = [kind for kind in KINDS if any(kind in str(row["part"]) for row in sheet.rows)]
    figure.legend(
        [patches[kind] for kind in kinds], kinds, loc="outside lower center", ncols=len(kinds)
    )
    sheet.notes.append(
        f"Durations are the ledger's, of {ROUNDS} rounds from the middle of the run of the first "
        "seed; where a generator works beside the trainer, each starts as early as S allows, and "
        "nothing else takes time."
    )
    return sheet.drawn()


def bound(rounds: pd.DataFrame) -> str:
    """Which side takes longer in a round, in measured seconds."""
    made, trained = float((rounds[GENERATE] + rounds[SCORE]).mean()), float(rounds[TRAIN].mean())
    side = "generation-bound" if made > trained else "training-bound"
    return f"{side}, {made:.3g} s of generation and {trained:.3g} s of training a round"

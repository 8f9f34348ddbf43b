"""Who worked when: lanes of trainer and generator, drawn from the ledger's measured seconds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from analysis.comparison.selection import Cell
from analysis.figures.blocks import row_names, seeds_text
from analysis.figures.families import Family
from analysis.figures.looks import BLUE, GREEN, GREY, ORANGE
from analysis.figures.sheet import Drawn, Sheet
from analysis.figures.style import page, plain
from rlhf_lab.experiment.planning.ideal_timeline import Work, ideal

ROUNDS = 4
GENERATE, SCORE, TRAIN, WALL = (
    "seconds/generate", "seconds/score", "seconds/train", "seconds/wall",
)  # fmt: skip
# Inches of a panel of two lanes.
LANES = 0.72
WORK = (GENERATE, SCORE, TRAIN, WALL)
WAIT = "seconds/wait"
NEEDS = (*WORK, WAIT)
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


def sums_of(cell: Cell, seed: int) -> pd.DataFrame:
    """The ledger's sums of seconds after each round, whose number less one is the index.

    Tables may have kept one round in several (`--compact`): the sums of those between two rows are
    on the straight line between them, so that each has the mean of the rounds that a row stands
    for. Rows that do not say of which round they are count as one each.
    """
    rows = cell.recorded[seed][[*WORK, WAIT]].reset_index(drop=True)
    after = rounds_of(cell, seed)
    every = np.arange(1, after[-1] + 1)
    sums = {name: np.interp(every, [0, *after], [0.0, *rows[name].astype(float)]) for name in rows}
    return pd.DataFrame(sums)


def rounds_of(cell: Cell, seed: int) -> list[int]:
    """After how many rounds each recorded row was written."""
    rows = cell.recorded[seed]
    told = rows["x/rounds"] if "x/rounds" in rows else pd.Series(dtype=float)
    if len(told) and not told.isna().any() and (np.diff([0, *told]) >= 1).all():
        return [int(number) for number in told]
    return list(range(1, len(rows) + 1))


def thinned(cell: Cell, seed: int) -> str:
    """How many rounds the rows of a run stand for, if that is not one each."""
    steps = sorted({int(step) for step in np.diff([0, *rounds_of(cell, seed)])})
    if steps == [1]:
        return ""
    span = str(steps[0]) if len(steps) == 1 else f"{steps[0]} to {steps[-1]}"
    return (
        f"{cell.condition}: its tables keep one round in {span}, so a round is the mean of those "
        "that a row stands for"
    )


def seconds_of(cell: Cell, seed: int) -> pd.DataFrame:
    """Seconds of each round by phase: differences of the ledger's sums."""
    sums = sums_of(cell, seed)
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


def beside(sums: pd.DataFrame, rounds: pd.DataFrame, staleness: int) -> list[Piece]:
    """The trainer's lane as measured, beside it a generator that begins a round's samples when it
    is free and the version is there that S allows. sums: the ledger's, of all rounds."""
    pieces, free = [], 0.0
    ready = sums[WALL].to_numpy()
    for number, row in zip(rounds.index, rounds.to_dict("records"), strict=True):
        version = int(number) - staleness - 1
        begin = max(free, float(ready[version]) if version >= 0 else 0.0)
        turn, free = begin + row[GENERATE], begin + row[GENERATE] + row[SCORE]
        pieces.append(Piece("generator", "generate", begin, turn, int(number)))
        pieces.append(Piece("generator", "score", turn, free, int(number)))
        now = float(ready[number]) - row[WALL] + row[WAIT]
        pieces.append(Piece("trainer", "train", now, now + row[TRAIN], int(number)))
        end = float(ready[number])
        pieces.append(Piece("trainer", "other", now + row[TRAIN], end, int(number)))
    return from_zero(pieces)


def overlapped(rounds: pd.DataFrame) -> list[Piece]:
    """The ideal timeline of measured seconds with a generator beside the trainer, one round
    ahead: nothing but generating, scoring and training takes time."""
    records = rounds.to_dict("records")
    made = [[row[GENERATE] + row[SCORE]] for row in records]
    best = ideal(Work(made, [row[TRAIN] for row in records]), 1, 1)
    pieces = []
    each = zip(rounds.index, best.generate, best.train, records, strict=True)
    for number, ((begin, end),), update, row in each:
        turn = begin + row[GENERATE]
        pieces.append(Piece("generator", "generate", begin, turn, int(number)))
        pieces.append(Piece("generator", "score", turn, end, int(number)))
        pieces.append(Piece("trainer", "train", *update, int(number)))
    return pieces


def from_zero(pieces: Sequence[Piece]) -> list[Piece]:
    first = min(piece.begin for piece in pieces)
    return [replace(piece, begin=piece.begin - first, end=piece.end - first) for piece in pieces]


def measured(cell: Cell, seed: int) -> list[Piece]:
    """A few rounds of a run in the lanes that it had."""
    rounds = middle(seconds_of(cell, seed))
    if cell.parts["mode"] not in MODES_BESIDE:
        return in_turn(rounds)
    return beside(sums_of(cell, seed), rounds, cell.parts["max_staleness"] or 0)


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
    """Figure 2: rounds of sync, and of async with a generator beside the trainer, as measured."""
    shows = "Who works when, sync and async, in rounds of real runs"
    note = (
        "Seconds are the ledger's; the generator's begin is the earliest that its own seconds and "
        "the staleness bound allow."
    )
    return timelines(families, ("mode", "model"), (shows, note), measured)


def bound_by(families: Sequence[Family]) -> Drawn:
    """Figure 6: measured seconds of other T and K side by side: who waits for whom."""
    shows = "Who waits, by passes T and samples a prompt K"
    note = (
        "Seconds are the ledger's, laid out as they would be with a generator beside the trainer, "
        "one round ahead and nothing else taking time."
    )

    def ideally(cell: Cell, seed: int) -> list[Piece]:
        return overlapped(middle(seconds_of(cell, seed)))

    return timelines(families, ("passes", "group_size", "model"), (shows, note), ideally)


def timelines(
    families: Sequence[Family],
    told: Sequence[str],
    words: tuple[str, str],
    pieces_of: Callable[[Cell, int], list[Piece]],
) -> Drawn:
    """A panel for each condition, of its first seed. words: what it shows, and how it was made."""
    cells = [cell for family in families for cell in family.cells]
    figure, axes = page(len(cells), 1, height=LANES, sharex=True)
    sheet = Sheet(figure, words[0], has_intervals=False)
    for cell, panel in zip(cells, axes[:, 0], strict=True):
        seed = cell.seeds[0]
        side = bound(middle(seconds_of(cell, seed)))
        lanes(sheet, panel, f"{cell.title(told)}: {side}", cell, pieces_of(cell, seed))
        sheet.seeds[f"{cell.condition} [{cell.env}]"] = (seed,)
        sheet.warn(*filter(None, [thinned(cell, seed)]))
    axes[-1, 0].set_xlabel("seconds since the first of these rounds")
    patches = {kind: Patch(color=c, hatch=h, ec="white") for kind, (c, h) in KINDS.items()}
    kinds = [kind for kind in KINDS if any(kind in str(row["part"]) for row in sheet.rows)]
    figure.legend(
        [patches[kind] for kind in kinds], kinds, loc="outside lower center", ncols=len(kinds)
    )
    sheet.notes.append(f"{ROUNDS} rounds from the middle of the run of the first seed. {words[1]}")
    return sheet.drawn()


def bound(rounds: pd.DataFrame) -> str:
    """Which side takes longer in a round, in measured seconds."""
    made, trained = float((rounds[GENERATE] + rounds[SCORE]).mean()), float(rounds[TRAIN].mean())
    side = "generation-bound" if made > trained else "training-bound"
    return f"{side}, {made:.3g} s of generation and {trained:.3g} s of training a round"

"""Compute the seconds of each round by phase from the ledger's sums in tables."""

from __future__ import annotations

import numpy as np
import pandas as pd

from rlhf_lab_analysis.comparison.cell import Cell
from rlhf_lab_analysis.ranges import span_text

GENERATE, SCORE, TRAIN, WALL, WAIT = COLUMNS = (
    "seconds/generate", "seconds/score", "seconds/train", "seconds/wall", "seconds/wait",
)  # fmt: skip
SHOWN_ROUNDS = 4


def sums_of(cell: Cell, seed: int) -> pd.DataFrame:
    """The ledger's sums of seconds after each round, whose number less one is the index.

    Tables may have kept one round in several (`--compact`): the sums of those between two rows are
    on the straight line between them, so that each has the mean of the rounds that a row stands
    for. Rows without the number of their round count as one each.
    """
    rows = cell.recorded[seed][list(COLUMNS)].reset_index(drop=True)
    after = rounds_of(cell, seed)
    every = np.arange(1, after[-1] + 1)
    sums = {name: np.interp(every, [0, *after], [0.0, *rows[name].astype(float)]) for name in rows}
    return pd.DataFrame(sums)


def rounds_of(cell: Cell, seed: int) -> list[int]:
    """After how many rounds each recorded row was written."""
    rows = cell.recorded[seed]
    numbers = rows["x/rounds"] if "x/rounds" in rows else pd.Series(dtype=float)
    if len(numbers) and not numbers.isna().any() and (np.diff([0, *numbers]) >= 1).all():
        return [int(number) for number in numbers]
    return list(range(1, len(rows) + 1))


def thinning_note(cell: Cell, seed: int) -> str:
    """How many rounds the rows of a run stand for, if that is not one each."""
    steps = [int(step) for step in np.diff([0, *rounds_of(cell, seed)])]
    if {*steps} == {1}:
        return ""
    return (
        f"{cell.condition}: its tables keep one round in {span_text(steps)}, so a round is the "
        "mean of those that a row stands for"
    )


def middle_rounds(sums: pd.DataFrame, count: int = SHOWN_ROUNDS) -> pd.DataFrame:
    """Seconds of so many rounds from the middle of a run, where neither start nor end disturbs."""
    seconds = sums.diff().fillna(sums.iloc[:1])
    # Not with the first one, but where there is no other.
    begin = max(min(1, len(seconds) - 1), (len(seconds) - count) // 2)
    return seconds.iloc[begin : begin + count]


def bound(rounds: pd.DataFrame) -> str:
    """Which side takes longer in a round, in measured seconds."""
    generated = float((rounds[GENERATE] + rounds[SCORE]).mean())
    trained = float(rounds[TRAIN].mean())
    side = "generation-bound" if generated > trained else "training-bound"
    return f"{side}, {generated:.3g} s of generation and {trained:.3g} s of training a round"

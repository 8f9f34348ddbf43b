"""Shrink runs so that they can be stored in git: fewer points, no paths of the machine."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.sources.axes import number
from rlhf_lab_analysis.sources.record import Cell, Reading, Record, Row

# Config groups that describe the machine and its trackers, which others cannot use.
LOCAL = ("output", "tracker", "hydra")
# Of the rounds between the points, whose numbers are many and are read for their course alone.
DIGITS = 4
# The sweep's name and condition, which identify runs, remain in the facts of a run.


def compact(
    reading: Reading, points: int, every_round: Mapping[str, Sequence[str]] | None = None
) -> Reading:
    """Every run with at most `points` evenly spaced points besides those of evaluated versions, and
    a config without LOCAL.

    every_round: sweeps, with the metrics that all rounds of their runs keep, to DIGITS significant
    digits between the points. Raises UserError if points is below 1.
    """
    if points < 1:
        raise UserError(f"--compact {points}: pass how many points of a run to keep, such as 32")
    return replace(
        reading,
        records=tuple(
            thin(one, points, (every_round or {}).get(one.facts.sweep, ()))
            for one in reading.records
        ),
    )


def thin(record: Record, points: int, kept: Sequence[str] = ()) -> Record:
    """One run. kept: metrics of which all rounds stay."""
    config = {key: value for key, value in record.config.items() if key not in LOCAL}
    rounds = choose_rounds(record.rounds, record.evals, points)
    if kept:
        whole = {id(row) for row in rounds}
        rounds = [row if id(row) in whole else course(row, kept) for row in record.rounds]
    return without_paths(replace(record, config=config, rounds=rounds))


def without_paths(record: Record) -> Record:
    """The run with its place and its project below the folder of its sweep, not below the root of
    the machine on which it was made."""
    facts = replace(record.facts, project=portable(record.facts.project, record.facts.sweep))
    return replace(record, place=portable(record.place, record.facts.sweep), facts=facts)


def portable(place: str, sweep: str) -> str:
    """An absolute path from the sweep's folder on, or its last name alone; what is none stays."""
    parts = Path(place).parts
    if not place.startswith("/") or len(parts) < 2:
        return place
    return "/".join(parts[parts.index(sweep) :] if sweep in parts else parts[-1:])


def course(row: Row, kept: Sequence[str]) -> Row:
    """Some metrics of a round, rounded."""
    return {key: rounded(row[key]) for key in kept if key in row}


def rounded(value: Cell) -> Cell:
    """To DIGITS significant digits; whole numbers stay."""
    if not isinstance(value, float) or not math.isfinite(value):
        return value
    return float(f"{value:.{DIGITS}g}")


def choose_rounds(rounds: Sequence[Row], evals: Sequence[Row], points: int) -> list[Row]:
    """Evenly spaced rounds, the last one among them, and those whose version was evaluated."""
    judged = {row["version"] for row in evals}
    last = len(rounds)
    evenly = {-(-last * place // points) - 1 for place in range(1, points + 1)}
    return [
        row
        for place, row in enumerate(rounds)
        if place in evenly or number(row, "total/rounds") in judged
    ]

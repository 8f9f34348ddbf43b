"""Shrink runs so that they can be stored in git: fewer points, no paths of the machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.sources.axes import number
from rlhf_lab_analysis.sources.record import Reading, Record, Row

# Config groups that describe the machine and its trackers, which others cannot use.
LOCAL = ("output", "tracker", "hydra")
# The sweep's name and condition, which identify runs, remain in the facts of a run.


def compact(reading: Reading, points: int) -> Reading:
    """Every run with at most `points` evenly spaced points besides those of evaluated versions, and
    a config without LOCAL. Raises UserError if points is below 1."""
    if points < 1:
        raise UserError(f"--compact {points}: pass how many points of a run to keep, such as 32")
    return replace(reading, records=tuple(thin(one, points) for one in reading.records))


def thin(record: Record, points: int) -> Record:
    config = {key: value for key, value in record.config.items() if key not in LOCAL}
    return replace(record, config=config, rounds=choose_rounds(record.rounds, record.evals, points))


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

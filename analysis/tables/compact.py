"""Runs made small enough to be kept beside the code, and free of where they were made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from analysis.sources.axes import number
from analysis.sources.record import Reading, Record, Row
from rlhf_lab.types.errors import UserError

# Where a run was written and whom it told: of no use to others.
LOCAL = ("output", "tracker", "hydra")
# The sweep's name and condition, by which runs are told apart, stay known as facts of a run.


def compact(reading: Reading, points: int) -> Reading:
    """Every run with at most so many points, and those of its evaluated versions; configs without
    where the run was written. Raises UserError for no points."""
    if points < 1:
        raise UserError(f"--compact {points}: pass how many points of a run to keep, such as 32")
    return replace(reading, records=tuple(thinned(one, points) for one in reading.records))


def thinned(record: Record, points: int) -> Record:
    config = {key: value for key, value in record.config.items() if key not in LOCAL}
    return replace(record, config=config, rounds=kept(record.rounds, record.evals, points))


def kept(rounds: Sequence[Row], evals: Sequence[Row], points: int) -> list[Row]:
    """Evenly spaced rounds, the last one among them, and those whose version was evaluated."""
    judged = {row["version"] for row in evals}
    last = len(rounds)
    evenly = {-(-last * place // points) - 1 for place in range(1, points + 1)}
    return [
        row
        for place, row in enumerate(rounds)
        if place in evenly or number(row, "total/rounds") in judged
    ]

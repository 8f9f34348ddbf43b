"""The x-axes of a table: what a run had cost when a number was recorded. Names end in units."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from rlhf_lab_analysis.sources.record import Cell, Record, Row

STEP, WALL, VIRTUAL = "x/step", "x/wall_seconds", "x/virtual_seconds"
RUNTIME, GLOBAL_STEP = "_runtime", "global_step"
# Of runs on a virtual cluster alone.
VIRTUAL_KEY = "virtual_seconds/wall"


@dataclass(frozen=True)
class Axis:
    """A column, the ledger's key that it is read from, and what a unit of that is worth."""

    column: str
    key: str
    scale: float = 1


AXES = (
    Axis("x/rounds", "total/rounds"),
    Axis("x/updates", "total/updates"),
    Axis("x/prompts", "total/prompts"),
    Axis("x/completions", "total/completions"),
    Axis("x/generated_tokens", "total/generated_tokens"),
    Axis("x/trained_tokens", "total/trained_tokens"),
    Axis("x/flops", "total/flops"),
    Axis(WALL, "seconds/wall"),
    Axis("x/device_hours", "seconds/device", 1 / 3600),
    Axis(VIRTUAL, VIRTUAL_KEY),
)
COLUMNS = (*(axis.column for axis in AXES), STEP)
Point = dict[str, float]


def number(row: Row, key: str) -> float | None:
    """A row's number; None where it has none."""
    value: Cell | None = row.get(key)
    return None if value is None or isinstance(value, str) else value


def axes_of(row: Row, step: str) -> Point:
    """The axes of a recorded point. A run without a ledger has its tracker's `_runtime` as
    wall-clock, and the axis that its source counts in (step) as x/step."""
    found = {axis.column: scaled(row, axis) for axis in AXES}
    if math.isnan(found[WALL]):
        found[WALL] = known(number(row, RUNTIME))
    return found | {STEP: known(number(row, step))}


def scaled(row: Row, axis: Axis) -> float:
    value = number(row, axis.key)
    return math.nan if value is None else value * axis.scale


def known(value: float | None) -> float:
    return math.nan if value is None else value


def clock_of(record: Record) -> str:
    """Which clock a run's wall-clock is of: the ledger's, which has training alone, or that of its
    tracker, which has everything since its start; "" if it has none."""
    for key in ("seconds/wall", RUNTIME):
        if any(key in row for row in record.rounds):
            return key
    return ""


class VersionAxes:
    """What a run had cost when a version was ready."""

    def __init__(self, record: Record, optimizer_steps_per_round: int | None) -> None:
        self._step = record.facts.step
        self._rows = {
            int(done): row
            for row in record.rounds
            if (done := number(row, "total/rounds")) is not None and math.isfinite(done)
        }
        self._updates_a_round = optimizer_steps_per_round

    def at(self, version: int, judged: Row | None = None) -> tuple[Point, bool]:
        """The axes, and whether the version's round was recorded. Version 0 has cost nothing.

        judged: the row of its evaluation, whose own axes stand for those that no round has.
        """
        if version == 0:
            is_virtual = any(VIRTUAL_KEY in row for row in self._rows.values())
            return {**dict.fromkeys(COLUMNS, 0.0), VIRTUAL: 0.0 if is_virtual else math.nan}, True
        row: Mapping[str, Cell] = self._rows.get(version, {})
        found = axes_of(row, self._step)
        if judged is not None:
            own = axes_of(judged, self._step)
            found = {name: own[name] if math.isnan(cost) else cost for name, cost in found.items()}
        found["x/rounds"] = float(version)
        if math.isnan(found["x/updates"]) and self._updates_a_round is not None:
            found["x/updates"] = float(version * self._updates_a_round)
        return found, bool(row)

"""Make predictions from the runs that they name, and score them by the runs that they are of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.comparison.cell import Cell
from rlhf_lab_analysis.comparison.families import value_of
from rlhf_lab_analysis.comparison.selection import Selection
from rlhf_lab_analysis.predictions.extrapolation import Point, by_law, by_line, interval_score
from rlhf_lab_analysis.predictions.rows import By, Prediction, Prompts
from rlhf_lab_analysis.statistics.results import Estimate
from rlhf_lab_analysis.statistics.scaling_runs import SHARES, ScalingRuns

QUALITY, UPDATES = "gold/win_rate", "x/updates"


@dataclass(frozen=True)
class Score:
    """An outcome, the mean over stage seeds, and how the interval did. score: see
    extrapolation.interval_score."""

    outcome: float
    num_seeds: int
    is_inside: bool
    score: float


def score(prediction: Prediction, selection: Selection) -> Score | None:
    """The score by these runs; None where none of them is of the condition."""
    cell = cell_of(prediction.name, prediction.of, selection)
    if cell is None:
        return None
    shares = shares_of(cell, prediction.prompts)
    outcome = sum(shares.values()) / len(shares)
    low, high = prediction.low, prediction.high
    return Score(
        outcome,
        len(shares),
        low <= outcome <= high,
        interval_score(low, high, prediction.level, outcome),
    )


def remade(prediction: Prediction, selection: Selection) -> Estimate:
    """The number and its interval, made again from the runs that it names.

    Raises UserError if a source is not among these runs.
    """
    cells = [source_of(prediction, source.runs, selection) for source in prediction.sources]
    if prediction.by is By.law:
        runs = ScalingRuns(cells[0].curves(UPDATES, QUALITY), SHARES)
        return by_law(runs, prediction.to, prediction.level)
    points = [
        Point(source.at, shares_of(cell, prediction.prompts))
        for source, cell in zip(prediction.sources, cells, strict=True)
    ]
    return by_line(points, prediction.to, prediction.level)


def source_of(prediction: Prediction, wanted: Mapping[str, Any], selection: Selection) -> Cell:
    cell = cell_of(prediction.name, wanted, selection)
    if cell is None:
        raise UserError(f"{prediction.name}: no run has {wanted}, from which it was made")
    return cell


def cell_of(name: str, wanted: Mapping[str, Any], selection: Selection) -> Cell | None:
    """The condition that has these values; None if there is none. Raises UserError if several
    have them, since each would give another outcome."""
    found = [cell for cell in selection.cells if has(cell, wanted)]
    if len(found) > 1:
        names = "; ".join(f"{cell.sweep}: {cell.condition}" for cell in found)
        raise UserError(f"{name}: {len(found)} conditions have {wanted}: {names}; name more keys")
    return found[0] if found else None


def has(cell: Cell, wanted: Mapping[str, Any]) -> bool:
    return all(
        (cell.sweep if key == "sweep" else value_of(cell, key)) == value
        for key, value in wanted.items()
    )


def shares_of(cell: Cell, prompts: Prompts) -> dict[int, float]:
    return cell.scores(QUALITY) if prompts is Prompts.last else cell.ways_end(QUALITY)


def summary(scores: Sequence[Score]) -> str:
    """How many intervals held, and their mean score in points."""
    if not scores:
        return "none is scored yet"
    inside = sum(one.is_inside for one in scores)
    mean = 100 * sum(one.score for one in scores) / len(scores)
    return f"{inside} of {len(scores)} inside, mean interval score {mean:.1f} points"

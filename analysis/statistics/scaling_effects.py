"""Compare the laws of two conditions, and predict held-out compute from the first part of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.statistics.arrays import Floats
from rlhf_lab_analysis.statistics.bootstrap import Weights, interval
from rlhf_lab_analysis.statistics.contrasts import pairing_notes, seeds_to_pair
from rlhf_lab_analysis.statistics.decisions import Shows, has_width, options_of
from rlhf_lab_analysis.statistics.results import (
    Basis,
    Estimate,
    require_seeds,
    size_warnings,
)
from rlhf_lab_analysis.statistics.scaling import LawFit, fit_law
from rlhf_lab_analysis.statistics.scaling_runs import ScalingRuns

# Difference of A, ratios of C_mid and of B: their intervals hold together.
TOGETHER = 3


class Moves(StrEnum):
    """What a condition is shown to change of the law."""

    ceiling = "moves the ceiling"
    speed = "moves the speed"
    both = "moves the ceiling and the speed"
    neither = "neither shown"
    not_identified = "not identified"


@dataclass(frozen=True)
class LawChange:
    """The first condition against the second: difference of A, ratios of C_mid and B. refused: why
    no verdict is given, from either fit."""

    ceiling: Estimate
    midpoint: Estimate
    exponent: Estimate
    moves: Moves
    refused: tuple[str, ...]


def compare_laws(first: ScalingRuns, second: ScalingRuns) -> LawChange:
    """Differences of the parameters in pairs of common seeds where there are enough of them.

    The three t intervals hold together at 95% (Bonferroni). Raises UserError for one seed.
    """
    paired = seeds_to_pair(first.seeds, second.seeds)
    notes = pairing_notes(first.seeds, second.seeds, paired)
    if paired:
        first, second = first.only(paired), second.only(paired)
    require_seeds("laws of scaling", [len(first.seeds), len(second.seeds)])

    def statistic(weights: Weights) -> Floats:
        ours, others = ([*weights] * 2 if paired else weights)[:2]
        return np.asarray(first.statistic([ours]) - second.statistic([others]))

    units = [len(runs.seeds) for runs in ((first,) if paired else (first, second))]
    options = options_of(Shows.above, TOGETHER)
    made = interval(statistic, units, options, "laws of scaling")
    basis = Basis(tuple(units), 1, options, (*size_warnings(units, options.method), *notes))
    ceiling, exponent, midpoint = (
        made.estimate(name, basis, place)
        for place, name in enumerate(("difference of A", "ratio of B", "ratio of C_mid"))
    )
    refused = tuple(
        f"{name}: {reason}"
        for name, runs in (("first", first), ("second", second))
        for reason in fit_law(runs).refused
    )
    speed = is_shown(exponent) or is_shown(midpoint)
    moves = Moves.not_identified if refused else moves_of(is_shown(ceiling), speed)
    return LawChange(ceiling, midpoint.exponential, exponent.exponential, moves, refused)


def is_shown(change: Estimate) -> bool:
    """Whether an interval excludes that nothing changes."""
    return has_width(change) and not change.low <= 0 <= change.high


def moves_of(ceiling: bool, speed: bool) -> Moves:
    if ceiling and speed:
        return Moves.both
    if ceiling or speed:
        return Moves.ceiling if ceiling else Moves.speed
    return Moves.neither


@dataclass(frozen=True)
class Prediction:
    """The values beyond `until` by the law of those before it.

    error: root mean square of what is predicted less the mean over seeds, at each held-out point.
    unchanged: the same of the mean at the last fitted point, taken for all that follow: a law that
    predicts no better than that has shown nothing. law: that of the first part, as `fit_law` has
    it.
    """

    until: float
    law: LawFit
    error: float
    unchanged: float


def predict(runs: ScalingRuns, share: float = 0.5) -> Prediction:
    """Fit the law to the first share of the compute that all runs reached, and predict the rest.

    Raises UserError for a share that leaves a run fewer than 3 points to fit, or none to predict.
    """
    if not 0 < share < 1:
        raise UserError(f"share={share}: pass more than 0 and less than 1, such as 0.5")
    until = share * runs.end
    curves = [runs.curves[seed] for seed in runs.seeds]
    kept = min(int((curve.x_P <= until).sum()) for curve in curves)
    rest = slice(kept, min(len(curve.x_P) for curve in curves))
    fit = fit_law(runs.first(kept))
    x_P, seen_P = (
        np.mean([getattr(curve, name)[rest] for curve in curves], axis=0) for name in ("x_P", "y_P")
    )
    stay = np.mean([curve.y_P[kept - 1] for curve in curves])
    error, unchanged = (
        float(np.sqrt(((each - seen_P) ** 2).mean())) for each in (fit.law.at(x_P), stay)
    )
    return Prediction(until, fit, error, unchanged)

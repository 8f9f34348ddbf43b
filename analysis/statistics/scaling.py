"""Fit the law of scaling with intervals over seeds, or state why runs do not identify it.

Intervals of B and C_mid are those of their logarithms (`scaling_runs` has the law).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rlhf_lab_analysis.statistics.bootstrap import interval, leave_one_out
from rlhf_lab_analysis.statistics.results import (
    Basis,
    Estimate,
    Method,
    Options,
    require_seeds,
    size_warnings,
)
from rlhf_lab_analysis.statistics.scaling_runs import PARAMETERS, Law, ScalingRuns

STUDENT = Options(method=Method.t)
# A share of the range between two bounds within which a value is at its bound.
NEAR = 1e-3


@dataclass(frozen=True)
class LawFit:
    """The law of a condition with intervals over seeds. refused: why its ceiling is not identified,
    so that none of the parameters is to be read; empty if it is. residual: the root mean square of
    what the law leaves of the values."""

    law: Law
    ceiling: Estimate
    exponent: Estimate
    midpoint: Estimate
    residual: float
    refused: tuple[str, ...]


def fit_law(runs: ScalingRuns, options: Options = STUDENT) -> LawFit:
    """Fit the law to all seeds. Raises UserError for one seed."""
    require_seeds("law of scaling", [len(runs.seeds)])
    units = [len(runs.seeds)]
    made = interval(runs.statistic, units, options, "law of scaling")
    notes = size_warnings(units, options.method)
    if min(len(curve.x_P) for curve in runs.curves.values()) == PARAMETERS + 1:
        notes += (f"{PARAMETERS} points after the start: as many as parameters",)
    basis = Basis((len(runs.seeds),), 1, options, notes)
    estimates = [made.estimate(name, basis, place) for place, name in enumerate(("A", "B", "C"))]
    ceiling, exponent, midpoint = estimates[0], *(one.exponential for one in estimates[1:])
    law = Law(float(runs.start_S.mean()), ceiling.point, exponent.point, midpoint.point)
    logs, y, shares = runs.points
    left = float(np.sqrt(shares.mean(axis=0) @ (law.at(np.exp(logs)) - y) ** 2))
    return LawFit(law, ceiling, exponent, midpoint, left, reasons(runs, law, ceiling, midpoint))


def reasons(runs: ScalingRuns, law: Law, ceiling: Estimate, midpoint: Estimate) -> tuple[str, ...]:
    """Why the ceiling is not identified. The fits without each seed count too: one that stops at a
    bound is set by the bound and not by the runs."""
    found = []
    low, high = runs.bounds
    near = NEAR * (high - low)
    fits = leave_one_out(runs.statistic, [len(runs.seeds)])[0][:, 0]
    if min(ceiling.low, *fits) <= low + near or max(ceiling.high, *fits) >= high - near:
        found.append(f"its interval touches a bound ({low:.3g} or {high:.3g})")
    if midpoint.high >= runs.end:
        found.append(
            f"the curve is not shown to bend: the interval of C_mid reaches {midpoint.high:.3g}, "
            f"beyond the last compute of {runs.end:.3g}"
        )
    if ceiling.low <= law.start <= ceiling.high:
        found.append("its interval holds the start, so that no change is shown")
    return tuple(found)

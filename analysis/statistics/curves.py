"""Curves of runs: values on a common grid, the area under them, the best quality up to a KL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.statistics.arrays import Floats, require_finite, same_length


@dataclass(frozen=True, eq=False)
class RunCurve:
    """What one run measured: x rises strictly (seconds, updates, ...), y was measured there."""

    x_P: Floats
    y_P: Floats

    @property
    def begin(self) -> float:
        return float(self.x_P[0])

    @property
    def end(self) -> float:
        return float(self.x_P[-1])


def curve_of(name: str, x: ArrayLike, y: ArrayLike) -> RunCurve:
    """A checked curve. Raises UserError for NaN, other lengths, or x that does not rise."""
    x_P, y_P = require_finite(f"{name} x", x, (1,)), require_finite(f"{name} y", y, (1,))
    same_length(**{f"{name} x": x_P, f"{name} y": y_P})
    if (falls := np.flatnonzero(np.diff(x_P) <= 0)).size:
        place = int(falls[0])
        raise UserError(
            f"{name}: x goes from {x_P[place]} to {x_P[place + 1]} at point {place + 1}; pass each "
            "point once, in order"
        )
    return RunCurve(x_P, y_P)


def common_range(curves: Sequence[RunCurve]) -> tuple[float, float]:
    """The x that every run measured. Raises UserError if there is none."""
    if not curves:
        raise UserError("no curves: pass at least one run")
    low, high = max(curve.begin for curve in curves), min(curve.end for curve in curves)
    if low >= high:
        raise UserError(
            f"no x is common to all runs (one begins at {low:g}, one ends at {high:g}): compare "
            "runs that overlap"
        )
    return low, high


def values_on_grid(curves: Sequence[RunCurve], grid_F: ArrayLike) -> Floats:
    """Each run at each point, on the straight line between measurements: scores_SF.

    Raises UserError for a point that a run never reached: nothing is extrapolated.
    """
    grid = require_finite("grid", grid_F, (1,))
    low, high = common_range(curves)
    for point in grid:
        if not low <= point <= high:
            raise UserError(
                f"grid point {point:g} is outside of {low:g} to {high:g}, which all runs measured: "
                "leave it out"
            )
    return np.stack([np.interp(grid, curve.x_P, curve.y_P) for curve in curves])


def areas(
    curves: Sequence[RunCurve], within: tuple[float, float] | None = None
) -> tuple[Floats, tuple[float, float]]:
    """The mean height of each run over a range that all measured (trapezoids): (S,), the range.

    An area over the length of its range, so that it is in the unit of y.
    """
    low, high = within or common_range(curves)
    if low >= high:
        raise UserError(f"within={low:g}, {high:g}: pass the lower end first")
    values_on_grid(curves, [low, high])
    found = []
    for curve in curves:
        inside = curve.x_P[(curve.x_P > low) & (curve.x_P < high)]
        x = np.concatenate([[low], inside, [high]])
        found.append(np.trapezoid(np.interp(x, curve.x_P, curve.y_P), x) / (high - low))
    return np.array(found), (low, high)


def frontier_of(name: str, kl: ArrayLike, quality: ArrayLike) -> RunCurve:
    """The best quality that a run has at each KL or below it, in the order of KL.

    Evaluations that an earlier one with less KL beats leave a level stretch. Raises UserError for
    NaN or different lengths.
    """
    kl_P, quality_P = (
        require_finite(f"{name} KL", kl, (1,)),
        require_finite(f"{name} quality", quality, (1,)),
    )
    same_length(**{f"{name} KL": kl_P, f"{name} quality": quality_P})
    order = np.lexsort((quality_P, kl_P))
    best = np.maximum.accumulate(quality_P[order])
    is_last = np.append(np.diff(kl_P[order]) > 0, True)
    return RunCurve(kl_P[order][is_last], best[is_last])

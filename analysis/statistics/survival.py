"""Estimate times of which some are only known to be later than a run's end (Kaplan-Meier 1958)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rlhf_lab_analysis.statistics.arrays import Floats

# Products such as (3/4) * (2/3) come out a bit above one half.
ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class Survival:
    """The Kaplan-Meier curve of weighted runs, of R draws: what share has not reached it yet.

    After the first run that ended without reaching it the curve takes the ends of runs for chance.
    A budget is none: read the curve no further (`Times.horizon`).

    time_S: in order, an end of a run after what others reached at the same time; left_RS: the
    share right after each time.
    """

    time_S: Floats
    left_RS: Floats

    def restricted_mean(self, horizon: float) -> Floats:
        """The area under the curve up to the horizon: mean time, later ones counting as it."""
        edges = np.minimum(np.concatenate([[0.0], self.time_S, [horizon]]), horizon)
        before_RS = np.concatenate([np.ones((len(self.left_RS), 1)), self.left_RS], axis=1)
        return np.asarray(before_RS @ np.diff(edges))

    def median(self, until: float = np.inf) -> Floats:
        """The first time after which at most half are left; infinite where there is none, or none
        up to which the curve is to be read."""
        times = np.append(np.where(self.time_S <= until, self.time_S, np.inf), np.inf)
        below_RS = self.left_RS <= 0.5 + ROUNDING
        never_R1 = np.ones((len(below_RS), 1), dtype=bool)
        first_R = np.concatenate([below_RS, never_R1], axis=1).argmax(axis=1)
        return np.asarray(times[first_R])


def survival(time_S: Floats, reached_S: NDArray[np.bool_], weights_RS: Floats) -> Survival:
    """The curve when runs that did not reach it count up to their end, and no further."""
    order = np.lexsort((~reached_S, time_S))
    weights = weights_RS[:, order]
    risk = np.cumsum(weights[:, ::-1], axis=1)[:, ::-1]
    lost = np.where(risk > 0, weights * reached_S[order] / np.where(risk > 0, risk, 1), 0)
    return Survival(time_S[order], np.cumprod(1 - lost, axis=1))

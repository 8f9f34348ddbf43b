"""The law of reward over compute of ScaleRL (arXiv:2510.13786), and its fit to runs of some seeds.

R(C) = R_0 + (A - R_0) / (1 + (C_mid / C)^B): R_0 is the value at the start, A the ceiling, B the
exponent, and C_mid the compute at which half of the way from R_0 to A is done. The law is fitted to
the runs of all seeds at once by least squares, in which each seed counts alike; R_0 is the mean of
their first points and no parameter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from scipy import optimize, special

from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.statistics.arrays import Floats
from rlhf_lab_analysis.statistics.bootstrap import Weights
from rlhf_lab_analysis.statistics.curves import RunCurve

# A, B and C_mid: points after the start that a fit needs.
PARAMETERS = 3
EXPONENTS = (0.1, 16.0)
# C_mid is looked for from a tenth of the first compute to ten times the last; the ceiling of what
# is no share up to twice the range of all values beyond them.
BESIDE, BEYOND = 10.0, 2.0
SHARES = (0.0, 1.0)


@dataclass(frozen=True)
class Law:
    """R_0, A, B and C_mid in the units of the curves."""

    start: float
    ceiling: float
    exponent: float
    midpoint: float

    def at(self, compute_P: Floats) -> Floats:
        """The value at each compute, which is 0 or more."""
        with np.errstate(divide="ignore"):
            logs = np.log(compute_P)
        rise_P = special.expit(self.exponent * (logs - np.log(self.midpoint)))
        return np.asarray(self.start + (self.ceiling - self.start) * rise_P)


@dataclass(frozen=True, eq=False)
class ScalingRuns:
    """The curves of a condition by seed, each with its start first. ceilings: least and largest A
    that is looked for, (0, 1) of shares.

    Raises UserError for curves with fewer than 3 points after the start, or compute below 0.
    """

    curves: Mapping[int, RunCurve]
    ceilings: tuple[float, float] | None = None
    fitted: dict[bytes, Floats] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        for seed, curve in self.curves.items():
            if len(curve.x_P) <= PARAMETERS:
                raise UserError(
                    f"seed {seed} has {len(curve.x_P) - 1} points after its start: the law has "
                    f"{PARAMETERS} parameters, evaluate more versions (eval.snapshots)"
                )
            if curve.begin < 0:
                raise UserError(f"seed {seed}: compute begins at {curve.begin:g}, pass 0 or more")

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(sorted(self.curves))

    @property
    def end(self) -> float:
        """The compute that all runs reached."""
        return min(curve.end for curve in self.curves.values())

    def only(self, seeds: Sequence[int]) -> ScalingRuns:
        return ScalingRuns({seed: self.curves[seed] for seed in seeds}, self.bounds)

    def first(self, count: int) -> ScalingRuns:
        """The same runs up to their first points, so many with the start."""
        kept = {s: RunCurve(c.x_P[:count], c.y_P[:count]) for s, c in self.curves.items()}
        return ScalingRuns(kept, self.ceilings)

    @cached_property
    def bounds(self) -> tuple[float, float]:
        if self.ceilings:
            return self.ceilings
        every = np.concatenate([curve.y_P for curve in self.curves.values()])
        reach = BEYOND * float(np.ptp(every) or 1.0)
        return float(every.min()) - reach, float(every.max()) + reach

    @cached_property
    def start_S(self) -> Floats:
        return np.array([self.curves[seed].y_P[0] for seed in self.seeds])

    @cached_property
    def points(self) -> tuple[Floats, Floats, Floats]:
        """Of all points after the starts: log compute, value, and which share of its seed each is
        (S, points)."""
        curves = [self.curves[seed] for seed in self.seeds]
        shares = np.zeros((len(curves), sum(len(curve.x_P) - 1 for curve in curves)))
        begin = 0
        for place, curve in enumerate(curves):
            count = len(curve.x_P) - 1
            shares[place, begin : begin + count] = 1 / count
            begin += count
        x, y = (np.concatenate([getattr(curve, n)[1:] for curve in curves]) for n in ("x_P", "y_P"))
        return np.log(x), y, shares

    @cached_property
    def limits(self) -> Floats:
        """Least and largest A, log B and log C_mid: (2, 3)."""
        logs = self.points[0]
        mids = logs.min() - np.log(BESIDE), logs.max() + np.log(BESIDE)
        return np.array([self.bounds, np.log(EXPONENTS), mids]).T

    @cached_property
    def grid(self) -> tuple[Floats, Floats]:
        """Pairs of log B and log C_mid to begin from, (G, 2), and the rise of each (G, points)."""
        low, high = self.limits[:, 1:]
        exponents, mids = np.linspace(low[0], high[0], 14), np.linspace(low[1], high[1], 32)
        pairs = np.stack(np.meshgrid(exponents, mids), axis=-1).reshape(-1, 2)
        return pairs, rises(pairs[:, :1], pairs[:, 1:], self.points[0])

    def parameters(self, weight_S: Floats) -> Floats:
        """A, log B and log C_mid of the seeds, each counted so often."""
        key = weight_S.tobytes()
        if key not in self.fitted:
            self.fitted[key] = self._fit(weight_S / weight_S.sum())
        return self.fitted[key]

    def _fit(self, weight_S: Floats) -> Floats:
        logs, y, shares = self.points
        start = float(weight_S @ self.start_S)
        weights = weight_S @ shares
        gain, root = y - start, np.sqrt(weights)
        pairs, rise_GN = self.grid
        low, high = self.limits
        # With B and C_mid given, the best A is that of a linear least-squares problem.
        products, squares = rise_GN @ (weights * gain), rise_GN**2 @ weights
        heights = np.clip(products / np.maximum(squares, 1e-300), low[0] - start, high[0] - start)
        errors = heights**2 * squares - 2 * heights * products
        best = int(errors.argmin())

        def residuals(given: Floats) -> Floats:
            rise = rises(given[1], given[2], logs)
            return np.asarray(root * ((given[0] - start) * rise - gain))

        def slopes(given: Floats) -> Floats:
            rise = rises(given[1], given[2], logs)
            bend = (given[0] - start) * rise * (1 - rise) * np.exp(given[1])
            columns = np.stack([rise, bend * (logs - given[2]), -bend])
            return np.asarray((root * columns).T)

        begin = np.clip([start + heights[best], *pairs[best]], low + 1e-9, high - 1e-9)
        found = optimize.least_squares(residuals, begin, slopes, bounds=(low, high), x_scale="jac")
        return np.asarray(found.x)

    def statistic(self, weights: Weights) -> Floats:
        """The parameters of R draws of seeds: (R, 3). Equal draws are fitted once."""
        return np.array([self.parameters(row) for row in weights[0]])


def rises(log_exponent: Floats, log_midpoint: Floats, logs: Floats) -> Floats:
    """1 / (1 + (C_mid / C)^B)."""
    return np.asarray(special.expit(np.exp(log_exponent) * (logs - log_midpoint)))

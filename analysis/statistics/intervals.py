"""Compute the ends of an interval from bootstrap draws and leave-one-out estimates."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy import special, stats

from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.statistics.arrays import Floats
from rlhf_lab_analysis.statistics.results import Method, Options


def ends(
    point_M: Floats, draws_RM: Floats, left_out: Sequence[Floats], options: Options
) -> tuple[Floats, Floats]:
    """Low and high ends, each (M,). percentile takes the draws, t what was left out, bca both.

    Raises UserError for log odds of what is no share.
    """
    if options.method is Method.t:
        return t_ends(point_M, left_out, options.level)
    if options.method is Method.logit:
        return logit_ends(point_M, left_out, options.level)
    tails = np.array([(1 - options.level) / 2, (1 + options.level) / 2])
    if options.method is Method.percentile:
        low_M, high_M = np.quantile(draws_RM, tails, axis=0)
        return low_M, high_M
    shares = bca_tails(point_M, draws_RM, acceleration(left_out), tails)
    found = [
        np.quantile(draws_RM[:, place], shares[:, place]) for place in range(draws_RM.shape[1])
    ]
    low_M, high_M = np.array(found).T
    return low_M, high_M


def bca_tails(point_M: Floats, draws_RM: Floats, bend_M: Floats, tails: Floats) -> Floats:
    """BCa's shares in place of the tails (Efron 1987, eq. 2.3): (2, M)."""
    repetitions = len(draws_RM)
    # Sums that differ in their last bit are ties: scores of few values make many.
    equal_RM = np.isclose(draws_RM, point_M, rtol=1e-12, atol=0)
    below_M = ((draws_RM < point_M) & ~equal_RM).sum(axis=0) + equal_RM.sum(axis=0) / 2
    edge = 0.5 / repetitions
    shift_M = stats.norm.ppf(np.clip(below_M / repetitions, edge, 1 - edge))
    moved = shift_M + stats.norm.ppf(tails)[:, None]
    return np.asarray(stats.norm.cdf(shift_M + moved / (1 - bend_M * moved)))


def influences(left_out: Sequence[Floats]) -> list[Floats]:
    """The jackknife's influence of each unit on the estimate: (units, M) for each stratum."""
    return [(len(values) - 1) * (values.mean(axis=0) - values) for values in left_out]


def acceleration(left_out: Sequence[Floats]) -> Floats:
    """BCa's acceleration of stratified data (Davison and Hinkley 1997, eq. 5.26): (M,)."""
    found = influences(left_out)
    cubes_M = np.sum([(each**3).sum(axis=0) / len(each) ** 3 for each in found], axis=0)
    squares_M = np.sum([(each**2).sum(axis=0) / len(each) ** 2 for each in found], axis=0)
    moved_M = squares_M > 0
    found_M = cubes_M / (6 * np.where(moved_M, squares_M, 1) ** 1.5)
    return np.where(moved_M, found_M, 0.0)


def variances(left_out: Sequence[Floats]) -> Floats:
    """The jackknife's variance that each stratum adds to the estimate: (strata, M)."""
    return np.array(
        [(each**2).sum(axis=0) / (len(each) * (len(each) - 1.0)) for each in influences(left_out)]
    )


def t_ends(point_M: Floats, left_out: Sequence[Floats], level: float) -> tuple[Floats, Floats]:
    """Ends of the t interval: jackknife standard error, Satterthwaite's degrees of freedom.

    For the mean of one task they are those of the textbook, s / sqrt(n) and n - 1.
    """
    parts = variances(left_out)
    total_M = parts.sum(axis=0)
    free = np.array([len(each) - 1 for each in left_out])[:, None]
    spread_M = (parts**2 / free).sum(axis=0)
    freedom_M = np.divide(total_M**2, spread_M, where=spread_M > 0, out=np.ones_like(total_M))
    half_M = stats.t.ppf((1 + level) / 2, freedom_M) * np.sqrt(total_M)
    return point_M - half_M, point_M + half_M


def mean_ends(values: Sequence[float], level: float, is_share: bool = False) -> tuple[float, float]:
    """Ends of the textbook's t interval of a mean, of a share on log odds; without bounds from a
    single value."""
    if len(values) < 2:
        return -math.inf, math.inf
    value_N = np.array(values)
    means_N1 = ((value_N.sum() - value_N) / (len(values) - 1))[:, None]
    made = logit_ends if is_share else t_ends
    low_1, high_1 = made(value_N.mean(keepdims=True), [means_N1], level)
    return float(low_1[0]), float(high_1[0])


def logit_ends(point_M: Floats, left_out: Sequence[Floats], level: float) -> tuple[Floats, Floats]:
    """Ends of the t interval of log odds, as shares: its standard error is that of the share by the
    derivative of the log odds, 1 / (p (1 - p)). At 0 and 1 there is no interval but the share."""
    if not ((point_M >= 0) & (point_M <= 1)).all():
        raise UserError(f"method={Method.logit}: {point_M} is no share from 0 to 1, take method=t")
    low_M, high_M = t_ends(point_M, left_out, level)
    slope_M = point_M * (1 - point_M)
    is_inside = slope_M > 0
    half_M = np.where(is_inside, (high_M - low_M) / 2 / np.where(is_inside, slope_M, 1), 0.0)
    odds_M = special.logit(np.where(is_inside, point_M, 0.5))
    ends_M = (special.expit(odds_M - half_M), special.expit(odds_M + half_M))
    low_M, high_M = (np.where(is_inside, end_M, point_M) for end_M in ends_M)
    return low_M, high_M

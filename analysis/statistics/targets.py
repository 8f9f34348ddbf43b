"""Estimate the time to a target when some runs never reach it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.statistics.arrays import Floats
from rlhf_lab_analysis.statistics.bootstrap import Weights, draws, estimate, interval
from rlhf_lab_analysis.statistics.contrasts import pairing_notes, seeds_to_pair
from rlhf_lab_analysis.statistics.crossings import Target, Times, horizon_of
from rlhf_lab_analysis.statistics.results import (
    Basis,
    Estimate,
    Method,
    Options,
    require_seeds,
    size_warnings,
)
from rlhf_lab_analysis.statistics.survival import survival


@dataclass(frozen=True)
class TimeToTarget:
    """How many runs reach the target, and how long they take.

    restricted_mean: the mean of times cut at the horizon, whose
    interval lies between 0 and it. median: infinite if half of the runs do not reach it before the
    first run ends without it; what comes after is not known of that run.
    """

    target: Target
    reached: int
    runs: int
    horizon: float
    restricted_mean: Estimate
    median: Estimate

    @property
    def warnings(self) -> tuple[str, ...]:
        return self.restricted_mean.warnings


def time_to_target(times: Times, options: Options) -> TimeToTarget:
    """How many arrive, restricted mean and median, with intervals by a bootstrap over runs.

    Raises UserError for one seed, or a target that every run had from its start.
    """
    require_seeds(times.target.metric, [len(times.seeds)])
    until = times.horizon
    if until <= 0:
        raise UserError(f"{times.target.metric} is reached at 0: there is no time to it")
    reached = int(times.reached_S.sum())
    return TimeToTarget(
        times.target,
        reached,
        len(times.seeds),
        until,
        restricted_mean(times, options, until),
        median_of(times, options),
    )


def restricted_mean(times: Times, options: Options, until: float) -> Estimate:
    """The mean time up to the horizon. Times are above 0, so the interval is that of its logarithm;
    where some run was there from its start it is cut at 0."""
    is_positive = bool(times.time_S.min() > 0)

    def statistic(weights: Weights) -> Floats:
        curve = survival(times.time_S, times.reached_S, weights[0])
        found = curve.restricted_mean(until)[:, None]
        return np.asarray(np.log(found) if is_positive else found)

    name = f"mean {times.target.axis} up to {until:g}"
    made = interval(statistic, [len(times.seeds)], options, "time to target")
    found = made.estimate(name, basis_of(times, options))
    found = found.exponential if is_positive else found
    return replace(found, low=max(found.low, 0.0), high=min(found.high, until))


def basis_of(times: Times, options: Options) -> Basis:
    seeds = (len(times.seeds),)
    return Basis(seeds, 1, options, (*size_warnings(seeds, options.method), *times.warnings))


def median_of(times: Times, options: Options) -> Estimate:
    """The median time; its ends are bootstrap values themselves, as some are infinite."""

    def median(weights: Weights) -> Floats:
        curve = survival(times.time_S, times.reached_S, weights[0])
        return curve.median(times.followed)[:, None]

    units, chosen = [len(times.seeds)], replace(options, method=Method.percentile)
    ordered = np.sort(draws(median, units, chosen, "median time")[:, 0])
    tails = np.array([1 - options.level, 1 + options.level]) / 2
    low, high = ordered[np.ceil(tails * len(ordered)).astype(int) - 1]
    point = float(estimate(median, units)[0])
    name = f"median {times.target.axis}"
    return Estimate(name, point, float(low), float(high), basis_of(times, chosen))


def times_ratio(before: Times, after: Times, options: Options) -> Estimate:
    """How many times sooner the second reaches the target: ratio of restricted means.

    Both are cut at one horizon, and drawn in pairs of the seeds that both have where there are
    enough of them.
    Raises UserError if the targets differ, or one has been reached at 0.
    """
    if before.target != after.target:
        raise UserError(f"{before.target} is not {after.target}: compare times to one target")
    paired = seeds_to_pair(before.seeds, after.seeds)
    notes = pairing_notes(before.seeds, after.seeds, paired)
    if paired:
        before, after = before.only(paired), after.only(paired)
    horizon = horizon_of(before, after)
    for times in (before, after):
        require_seeds(times.target.metric, [len(times.seeds)])
        if np.minimum(times.time_S, horizon).min() <= 0:
            raise UserError(f"{times.target.metric} is reached at 0: no ratio can be taken")
    units = [len(times.seeds) for times in ((before,) if paired else (before, after))]

    def log_ratio(weights: Weights) -> Floats:
        both = [*weights] * 2 if paired else weights
        means = [
            np.log(survival(times.time_S, times.reached_S, weight).restricted_mean(horizon))
            for times, weight in zip((before, after), both, strict=True)
        ]
        return np.asarray(means[0] - means[1])[:, None]

    made = interval(log_ratio, units, options, "ratio of times")
    sizes = (len(before.seeds), len(after.seeds))
    warnings = (*size_warnings(sizes, options.method), *notes, *before.warnings, *after.warnings)
    basis = Basis(sizes, 1, options, warnings)
    return made.estimate(f"ratio of mean {before.target.axis} up to {horizon:g}", basis).exponential

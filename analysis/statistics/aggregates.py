"""Aggregate seeds and tasks: IQM, median, mean, optimality gap (arXiv:2108.13264)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.statistics.arrays import Floats
from rlhf_lab_analysis.statistics.bootstrap import Interval, Weights, interval
from rlhf_lab_analysis.statistics.results import Estimate, Method, Options
from rlhf_lab_analysis.statistics.scores import Given, Scores, scores_of

# Scores and weights_NR, how often each score counts, to a number of each frame: (R, F).
Aggregate: TypeAlias = Callable[[Scores, Floats], Floats]
TRIMMED = 0.25


def task_means(scores: Scores, weights_NR: Floats) -> Floats:
    """The mean of each task over its seeds: (T, R, F)."""
    sums = [
        np.add.reduceat(weights_NR * values_N[:, None], scores.begins_T, axis=0)
        for values_N in scores.values_NF.T
    ]
    return np.asarray(np.stack(sums, axis=2) / scores.seeds_TR(weights_NR)[:, :, None])


def mean_of(scores: Scores, weights_NR: Floats, values_NF: Floats) -> Floats:
    """The mean over tasks of the means over seeds of something that each score has: (R, F)."""
    seeds_NR = np.repeat(scores.seeds_TR(weights_NR), scores.seeds, axis=0)
    means_RF: Floats = (weights_NR / seeds_NR).T @ values_NF / len(scores.tasks)
    return means_RF


def mean(scores: Scores, weights_NR: Floats) -> Floats:
    """The mean over tasks of their means over seeds."""
    return mean_of(scores, weights_NR, scores.values_NF)


def median(scores: Scores, weights_NR: Floats) -> Floats:
    """The median over tasks of their means over seeds."""
    return np.asarray(np.median(task_means(scores, weights_NR), axis=0))


def optimality_gap(scores: Scores, weights_NR: Floats) -> Floats:
    """How far scores, cut at 1, stay below it, a mean over tasks of means over seeds."""
    return np.asarray(1 - mean_of(scores, weights_NR, np.minimum(scores.values_NF, 1)))


def iqm(scores: Scores, weights_NR: Floats) -> Floats:
    """The mean of the middle half of the scores of all tasks, in which each task weighs alike.

    Of a weight of N scores int(N / 4) is cut at each end. Where tasks have equally many seeds these
    are whole scores, as of scipy.stats.trim_mean and rliable. Where they have not, pooled scores
    would compare the mix of tasks instead of conditions.
    """
    total_R = weights_NR.sum(axis=0)
    seeds_NR = np.repeat(scores.seeds_TR(weights_NR), scores.seeds, axis=0)
    even_NR = weights_NR * (total_R / len(scores.tasks) / seeds_NR)
    cut_R = np.floor(TRIMMED * total_R)
    columns = []
    for values_N, order_N in zip(scores.values_NF.T, scores.order_FN, strict=True):
        # What of the smallest scores up to each one lies in the middle half, and the cut part.
        reached_NR = np.cumsum(even_NR[order_N], axis=0)
        np.clip(reached_NR, cut_R, total_R - cut_R, out=reached_NR)
        ordered_N = values_N[order_N]
        falls_N = np.append(-np.diff(ordered_N), ordered_N[-1])
        columns.append(falls_N @ reached_NR - cut_R * ordered_N[0])
    return np.asarray(np.stack(columns, axis=1) / (total_R - 2 * cut_R)[:, None])


MEASURES: Mapping[str, Aggregate] = {
    "iqm": iqm,
    "median": median,
    "mean": mean,
    "optimality_gap": optimality_gap,
}


def warnings_of(name: str, scores: Scores, options: Options) -> tuple[str, ...]:
    """What a measure does not do with so few scores, or with this method."""
    found = []
    total = sum(scores.seeds)
    if name == "iqm" and int(TRIMMED * total) == 0:
        found.append(f"the IQM of {total} scores cuts none: it is their mean")
    if name == "median" and len(scores.tasks) == 1:
        found.append("the median over 1 task is its mean")
    if name == "median" and len(scores.tasks) > 1 and options.method is not Method.percentile:
        found.append("the jackknife behind t and bca is rough for a median: use percentile")
    return tuple(found)


def intervals(scores: Scores, measures: Sequence[Aggregate], options: Options) -> Interval:
    """All measures, a column for each measure and frame, from the same draws."""

    def statistic(weights: Weights) -> Floats:
        weights_NR = scores.pooled(weights)
        return np.concatenate([measure(scores, weights_NR) for measure in measures], axis=1)

    return interval(statistic, scores.seeds, options, "aggregate", scores.name)


def aggregates(
    conditions: Mapping[str, Given],
    options: Options,
    measures: Mapping[str, Aggregate] = MEASURES,
) -> dict[str, dict[str, Estimate]]:
    """For each condition, each measure of its scores_ST with its interval.

    Raises UserError for NaN, one seed, or scores over frames.
    """
    found = {}
    for name, given in conditions.items():
        scores = scores_of(name, given)
        if scores.tasks[0].shape[1] > 1:
            raise UserError(f"{name} has scores of several frames: pass those of one")
        made = intervals(scores, list(measures.values()), options)
        found[name] = {
            measure: made.estimate(
                measure, scores.basis(options, *warnings_of(measure, scores, options)), place
            )
            for place, measure in enumerate(measures)
        }
    return found


def points(given: Given, measures: Mapping[str, Aggregate] = MEASURES) -> dict[str, float]:
    """The measures without intervals, for which one seed is enough."""
    scores = scores_of("scores", given, needed=1)
    ones_NR = np.ones((sum(scores.seeds), 1))
    return {name: float(measure(scores, ones_NR)[0, 0]) for name, measure in measures.items()}

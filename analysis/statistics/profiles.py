"""Performance profiles: the share of runs above each score (arXiv:2108.13264, section 4.2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.statistics.aggregates import mean_of, task_means
from rlhf_lab_analysis.statistics.arrays import Floats, require_finite
from rlhf_lab_analysis.statistics.bootstrap import Weights, interval
from rlhf_lab_analysis.statistics.results import Band, Options
from rlhf_lab_analysis.statistics.scores import Given, Resampling, Scores, scores_of


def performance_profiles(
    conditions: Mapping[str, Given],
    taus_F: Sequence[float],
    options: Options,
    resampling: Resampling = Resampling.seeds_within_tasks,
    of_task_means: bool = False,
) -> dict[str, Band]:
    """For each tau the share of runs that score more than it, a mean over tasks.

    of_task_means: the share of tasks whose mean is above it, of which few tasks make few steps.
    """
    taus = require_finite("taus", list(taus_F), (1,))
    found = {}
    for name, given in conditions.items():
        scores = scores_of(name, given, resampling)
        if scores.values_NF.shape[1] > 1:
            raise UserError(f"{name} has scores of several frames: pass those of one")
        statistic = partial(shares, scores, taus, of_task_means)
        made = interval(statistic, scores.units, options, "profile", name)
        measure = "share of task means above" if of_task_means else "share of runs above"
        found[name] = made.band(measure, taus, scores.basis(options))
    return found


def shares(scores: Scores, taus_F: Floats, of_task_means: bool, weights: Weights) -> Floats:
    """The profile of each draw: (R, F)."""
    weights_NR = scores.pooled(weights)
    if of_task_means:
        return np.asarray((task_means(scores, weights_NR) > taus_F).mean(axis=0))
    return mean_of(scores, weights_NR, (scores.values_NF > taus_F).astype(np.float64))

"""The probability that a run of one condition beats one of another (arXiv:2108.13264, 4.3)."""

from __future__ import annotations

import numpy as np

from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.statistics.arrays import Floats
from rlhf_lab_analysis.statistics.bootstrap import Weights, interval
from rlhf_lab_analysis.statistics.results import Basis, Estimate, Options, size_warnings
from rlhf_lab_analysis.statistics.scores import Given, Resampling, content, rows_in_order, tasks_of


def pairs_of_tasks(first: Given, second: Given) -> list[tuple[Floats, Floats]]:
    """The scores of both at each task, each (seeds,). Raises UserError if tasks differ."""
    ours, others = tasks_of("first", first), tasks_of("second", second)
    if set(ours) != set(others):
        odd = sorted(set(ours) ^ set(others))[0]
        raise UserError(f"task {odd!r} is in one of the two alone: pass the same tasks of both")
    found = [(ours[task], others[task]) for task in ours]
    for values in found[0]:
        if values.shape[1] > 1:
            raise UserError("scores of several frames: pass those of one")
    return [(one[:, 0], other[:, 0]) for one, other in found]


def beats(first_S: Floats, second_S: Floats) -> Floats:
    """1 where the first is larger, 1/2 where they are equal: (seeds, seeds)."""
    larger = first_S[:, None] > second_S[None]
    equal = first_S[:, None] == second_S[None]
    return np.asarray(larger + equal / 2)


def probability_of_improvement(
    first: Given,
    second: Given,
    options: Options,
    resampling: Resampling = Resampling.seeds_within_tasks,
) -> Estimate:
    """P(first > second) + P(equal) / 2 of two runs of a task, a mean over tasks.

    The two conditions are drawn independently. Raises UserError for NaN, one seed, other tasks.
    """
    pairs = pairs_of_tasks(first, second)
    within = resampling is Resampling.seeds_within_tasks
    if within:
        pairs = [(np.sort(one), np.sort(other)) for one, other in pairs]
        pairs.sort(key=lambda pair: (content(pair[0]), content(pair[1])))
        units = [len(side) for pair in pairs for side in pair]
    else:
        pairs = whole_runs(pairs)
        units = [len(side) for side in pairs[0]]
    tables = [beats(one, other) for one, other in pairs]

    def statistic(weights: Weights) -> Floats:
        by_task = weights if within else [*weights] * len(tables)
        found = np.zeros(len(weights[0]))
        for table, ours, others in zip(tables, by_task[::2], by_task[1::2], strict=True):
            total = ours.sum(axis=1) * others.sum(axis=1)
            found = found + ((ours @ table) * others).sum(axis=1) / total
        return (found / len(tables))[:, None]

    made = interval(statistic, units, options, "improvement")
    seeds = tuple(len(side) for pair in pairs for side in pair)
    basis = Basis(seeds, len(tables), options, size_warnings(seeds, options.method))
    return made.estimate("probability_of_improvement", basis)


def whole_runs(pairs: list[tuple[Floats, Floats]]) -> list[tuple[Floats, Floats]]:
    """The same with the seeds of each side in an order of their content."""
    for side in (0, 1):
        if len({len(pair[side]) for pair in pairs}) > 1:
            raise UserError(
                f"resampling={Resampling.whole_runs}: tasks have different seeds; pass those that "
                f"all have, or resampling={Resampling.seeds_within_tasks}"
            )
    ours = rows_in_order(np.stack([one for one, _ in pairs], axis=1))
    others = rows_in_order(np.stack([other for _, other in pairs], axis=1))
    return list(zip(ours.T, others.T, strict=True))

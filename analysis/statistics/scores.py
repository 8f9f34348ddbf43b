"""Scores of one condition by task and seed. The bootstrap draws the seeds of each task by
themselves, as rliable does (arXiv:2108.13264)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.statistics.arrays import Floats, require_finite
from rlhf_lab_analysis.statistics.bootstrap import Weights
from rlhf_lab_analysis.statistics.results import Basis, Options, require_seeds, size_warnings

# Either scores_ST (seeds, tasks), with frames scores_STF, or task -> scores of its own seeds.
Given: TypeAlias = NDArray[np.float64] | Mapping[str, ArrayLike]


@dataclass(frozen=True, eq=False)
class Scores:
    """The scores of one condition, for each task (seeds, frames), in an order of their own.

    The order of seeds and tasks that they were given in leaves no trace in any result.
    """

    name: str
    tasks: tuple[Floats, ...]

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(len(values) for values in self.tasks)

    def pooled(self, weights: Weights) -> Floats:
        """From the weights of each task's seeds to those of all scores: (N, R)."""
        return np.concatenate([weights_RS.T for weights_RS in weights])

    @cached_property
    def values_NF(self) -> Floats:
        """All scores, task by task."""
        return np.concatenate(self.tasks)

    @cached_property
    def begins_T(self) -> NDArray[np.intp]:
        """Where each task begins among all scores."""
        return np.cumsum([0, *self.seeds[:-1]])

    def seeds_TR(self, weights_NR: Floats) -> Floats:
        """How many seeds each task has in each draw."""
        return np.asarray(np.add.reduceat(weights_NR, self.begins_T, axis=0))

    @cached_property
    def order_FN(self) -> NDArray[np.intp]:
        """Which of all scores is the smallest, the next one, ..., at each frame."""
        return np.argsort(self.values_NF, axis=0, kind="stable").T

    def basis(self, options: Options, *warnings: str) -> Basis:
        found = (*size_warnings(self.seeds, options.method), *warnings)
        if all((values == values[0]).all() for values in self.tasks):
            found += ("the seeds of every task are equal: an interval without width shows nothing",)
        return Basis(self.seeds, len(self.tasks), options, found)


def scores_of(name: str, given: Given) -> Scores:
    """Checked scores of a condition. Raises UserError for NaN, too few seeds, wrong dimensions."""
    rows = (values[np.lexsort(values.T[::-1])] for values in tasks_of(name, given).values())
    return Scores(name, tuple(sorted(rows, key=lambda values_SF: values_SF.ravel().tolist())))


def tasks_of(name: str, given: Given) -> dict[str, Floats]:
    """By task the scores of its seeds, (seeds, frames), in the order given."""
    if isinstance(given, Mapping):
        found = {
            str(task): require_finite(f"{name}[{task!r}]", values, (1, 2))
            for task, values in given.items()
        }
        if not found:
            raise UserError(f"{name} has no tasks: pass at least one")
    else:
        values = require_finite(name, given, (2, 3))
        found = {str(place): values[:, place] for place in range(values.shape[1])}
    found = {task: values.reshape(len(values), -1) for task, values in found.items()}
    if len({values.shape[1] for values in found.values()}) > 1:
        raise UserError(f"{name}: tasks differ in their number of frames; bring them to one grid")
    require_seeds(name, [len(values) for values in found.values()])
    return found

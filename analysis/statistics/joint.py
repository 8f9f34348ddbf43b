"""AdaStop's own test: the largest difference of all open pairs against one bound.

arXiv:2306.10882, algorithm 1: at an interim the pair with the largest difference is decided if that
exceeds what the largest difference of permuted labels rarely does; then the same for the pairs that
are left. A labeling relabels all pairs alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rlhf_lab_analysis.statistics.arrays import Floats
from rlhf_lab_analysis.statistics.plans import (
    Bound,
    Decision,
    Pair,
    PairResult,
    Plan,
    direction,
    has_next,
)
from rlhf_lab_analysis.statistics.relabel import (
    ROUNDING,
    Look,
    bound_of,
    errors_of,
    labelings,
    sums_of,
)


@dataclass(frozen=True)
class Passed:
    """An interim that is over: its bound, and the pairs that stayed open."""

    bound: float
    still: tuple[Pair, ...]


def joint_tests(
    scores: Mapping[str, Floats], plan: Plan, pairs: Sequence[Pair]
) -> tuple[dict[Pair, PairResult], list[Pair], int]:
    """Results of all pairs, those still open, and interims looked at."""
    scale = float(np.ptp(np.concatenate([scores[name] for pair in pairs for name in pair])))
    found: dict[Pair, PairResult] = {}
    history: dict[Pair, tuple[Look, ...]] = {pair: () for pair in pairs}
    passed: list[Passed] = []
    still, spent = list(pairs), 0.0

    def had(pair: Pair) -> int:
        return len(history[pair]) + (pair in still)

    while has_next(scores, plan, still, len(passed)):
        interims = len(passed) + 1
        labels, is_exact = labelings(plan.seeds, interims, plan.permutations, plan.seed)
        # A pair that was decided since still says which labelings an earlier interim stopped.
        sums = {
            pair: sums_of(scores[pair[0]], scores[pair[1]], labels[:, : had(pair)], scale)
            for pair in pairs
        }
        opened = {pair: sums[pair] for pair in still}
        interim = Interim(plan, opened, alive(sums, passed), interims, spent, is_exact)
        looked, bound, used = interim.step_down()
        for pair, look in looked.items():
            history[pair] += (look,)
            decision = Decision.undecided
            if look.is_rejected:
                decision = direction(scores, pair, interims * plan.seeds)
            found[pair] = PairResult(decision, interims, history[pair])
        still = [pair for pair in still if not looked[pair].is_rejected]
        passed.append(Passed(bound, tuple(still)))
        spent += used
    return found, still, len(passed)


def alive(sums: Mapping[Pair, Floats], passed: Sequence[Passed]) -> NDArray[np.bool_]:
    """Labelings that no earlier interim would have stopped, for the pairs that it left open."""
    alive_R = np.ones(len(next(iter(sums.values()))), dtype=bool)
    for place, interim in enumerate(passed):
        largest_R = np.max([np.abs(sums[pair][:, place]) for pair in interim.still], axis=0)
        alive_R &= largest_R <= interim.bound
    return alive_R


@dataclass(frozen=True)
class Interim:
    """One interim of the open pairs.

    sums: their first labeling is the true one. alive_R: labelings that still count. spent: share of
    labelings that exceeded earlier bounds.
    """

    plan: Plan
    sums: Mapping[Pair, Floats]
    alive_R: NDArray[np.bool_]
    number: int
    spent: float
    is_exact: bool

    @property
    def level(self) -> float:
        """What may be spent by now."""
        return self.plan.alpha * self.number / self.plan.interims

    def step_down(self) -> tuple[dict[Pair, Look], float, float]:
        """The look at each pair, and the last bound with the share of labelings that exceed it."""
        looked: dict[Pair, Look] = {}
        still, bound, used = list(self.sums), float("inf"), 0.0
        while still:
            largest_R = self.largest(still)
            bound, used = self.bound_of(largest_R)
            size = {pair: abs(float(self.sums[pair][0, -1])) for pair in still}
            first = max(still, key=lambda pair: size[pair])
            for pair in still:
                p = self.spent + float((largest_R >= size[pair]).sum()) / len(self.alive_R)
                is_rejected = pair == first and size[pair] > bound
                errors = errors_of(p, self.level, len(self.alive_R), self.is_exact)
                looked[pair] = Look(p, self.level, is_rejected, errors)
            if not looked[first].is_rejected:
                break
            still.remove(first)
        return looked, bound, used

    def largest(self, pairs: Sequence[Pair]) -> Floats:
        """The largest difference of these pairs in each labeling that counts."""
        last = [self.sums[pair][self.alive_R, -1] for pair in pairs]
        if self.plan.bound is Bound.joint:
            last = [np.abs(sums_R) for sums_R in last]
        return np.asarray(np.max(last, axis=0))

    def bound_of(self, largest_R: Floats) -> tuple[float, float]:
        """The bound, and the share of labelings that count as exceeding it."""
        total = len(self.alive_R)
        allowed = (self.level - self.spent) * total
        if self.plan.bound is Bound.adastop:
            # Its bound is the value at a place in their order, and all behind it count as exceeding
            # it; where none may, it is the largest.
            behind = min(int(allowed + ROUNDING), len(largest_R) - 1)
            return float(np.sort(largest_R)[len(largest_R) - 1 - behind]), behind / total
        bound, exceeding = bound_of(largest_R, allowed)
        return bound, exceeding / total

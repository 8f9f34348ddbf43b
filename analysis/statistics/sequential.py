"""Comparing conditions while seeds are still being trained: a group-sequential permutation test.

After AdaStop (arXiv:2306.10882): at each interim every condition that is still compared gets some
more seeds, labels are permuted within each interim's seeds, and the level is spent evenly over the
interims. A claim can be made as soon as it holds, and all claims hold together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from analysis.statistics.arrays import Floats, finite
from analysis.statistics.relabel import bound_of, labelings, sums_of
from rlhf_lab.types import UserError

Pair = tuple[str, str]
# Nearer than this to its level, a p-value of other random permutations may decide otherwise.
CLOSE = 3.0


class Decision(StrEnum):
    """Of a pair: the first is larger, or smaller; no difference was shown; or seeds are wanted."""

    larger = "larger"
    smaller = "smaller"
    not_shown = "no difference shown"
    undecided = "more seeds"


@dataclass(frozen=True)
class Plan:
    """What is fixed before the first seed: seeds of an interim, interims, level, permutations."""

    seeds: int = 5
    interims: int = 5
    alpha: float = 0.05
    permutations: int = 20_000
    seed: int = 0

    def __post_init__(self) -> None:
        if self.seeds < 2 or self.interims < 1:
            raise UserError(
                f"seeds={self.seeds}, interims={self.interims}: pass at least 2 seeds and 1 interim"
            )
        if not 0 < self.alpha < 1:
            raise UserError(f"alpha={self.alpha}: pass a share between 0 and 1, such as 0.05")
        if self.permutations < 1000:
            raise UserError(f"permutations={self.permutations}: pass at least 1000")


@dataclass(frozen=True)
class Interim:
    """What one interim found: pairs decided, those of its last check, its bound, level spent.

    closest: how far the nearest p-value was from the level it was held against, in Monte Carlo
    errors; infinite where all permutations were tried.
    """

    decided: Mapping[Pair, Decision]
    checked: tuple[Pair, ...]
    bound: float
    spent: float
    permutations: int
    is_exact: bool
    closest: float


@dataclass(frozen=True)
class Sequential:
    """Decisions of all pairs so far, which conditions need more seeds, and the interims."""

    plan: Plan
    decisions: Mapping[Pair, Decision]
    need_more: tuple[str, ...]
    interims: tuple[Interim, ...]
    warnings: tuple[str, ...]

    @property
    def is_finished(self) -> bool:
        return not self.need_more


@dataclass(frozen=True)
class Look:
    """The sums of all labelings at one interim, and which of them came so far: (R, pairs), (R,)."""

    pairs: tuple[Pair, ...]
    sums_RC: Floats
    alive_R: NDArray[np.bool_]
    is_exact: bool

    def largest(self, pairs: Sequence[Pair]) -> Floats:
        """The largest sum of any of the pairs, of each labeling: (R,)."""
        return np.asarray(self.sums_RC[:, [self.pairs.index(pair) for pair in pairs]].max(axis=1))


def look(
    scores: Mapping[str, Floats], plan: Plan, pairs: Sequence[Pair], before: Sequence[Interim]
) -> Look:
    """What permuting labels would have given up to the interim after those before."""
    labels, is_exact = labelings(plan.seeds, len(before) + 1, plan.permutations, plan.seed)
    alive_R = np.ones(len(labels), dtype=bool)
    for place, interim in enumerate(before):
        sums_RC = absolute(scores, interim.checked, labels[:, : place + 1])
        alive_R &= sums_RC.max(axis=1) <= interim.bound
    return Look(tuple(pairs), absolute(scores, pairs, labels), alive_R, is_exact)


def absolute(
    scores: Mapping[str, Floats], pairs: Sequence[Pair], labels: NDArray[np.bool_]
) -> Floats:
    """|sum so far of differences of means|, (R, pairs), rounded so that ties stay ties."""
    sums_RC = np.stack(
        [sums_of(scores[first], scores[second], labels) for first, second in pairs], axis=1
    )
    return np.asarray(np.round(np.abs(sums_RC), 10))


def interim_of(
    scores: Mapping[str, Floats], plan: Plan, pairs: Sequence[Pair], before: Sequence[Interim]
) -> Interim:
    """Step-down at one interim: the largest difference first, until one does not hold."""
    seen = look(scores, plan, pairs, before)
    total, level = len(seen.alive_R), plan.alpha * (len(before) + 1) / plan.interims
    spent = before[-1].spent if before else 0.0
    still, decided = list(pairs), {}
    closest = np.inf
    while still:
        largest_R = seen.largest(still)[seen.alive_R]
        bound, used = bound_of(largest_R, spent, level, total)
        observed_C = np.array([seen.sums_RC[0, seen.pairs.index(pair)] for pair in still])
        checked, top = tuple(still), int(observed_C.argmax())
        p = spent + float((largest_R >= observed_C[top]).sum()) / total
        if not seen.is_exact:
            closest = min(closest, abs(p - level) / np.sqrt(level * (1 - level) / total))
        if observed_C[top] <= bound:
            break
        pair = still.pop(top)
        decided[pair] = direction(scores, pair, (len(before) + 1) * plan.seeds)
    return Interim(decided, checked, bound, spent + used, total, seen.is_exact, float(closest))


def direction(scores: Mapping[str, Floats], pair: Pair, seeds: int) -> Decision:
    first, second = (float(scores[name][:seeds].mean()) for name in pair)
    return Decision.larger if first > second else Decision.smaller


def checked_pairs(names: Sequence[str], pairs: Sequence[Pair] | None) -> list[Pair]:
    """The pairs asked for, or all. Raises UserError for a condition that there is not."""
    found = list(combinations(names, 2)) if pairs is None else list(pairs)
    for pair in found:
        if pair[0] == pair[1] or not {*pair} <= {*names}:
            raise UserError(f"pair {pair}: pass two of {', '.join(names)}")
    if not found:
        raise UserError("no pairs to compare: pass at least two conditions")
    return found


def sequential(
    scores: Mapping[str, ArrayLike], plan: Plan, pairs: Sequence[Pair] | None = None
) -> Sequential:
    """All interims that the seeds so far suffice for, replayed from the first one.

    scores: of each condition in the order of training. What an interim decided stays decided when
    more seeds come. Raises UserError if a condition has fewer seeds than one interim.
    """
    values = {name: finite(name, given, (1,)) for name, given in scores.items()}
    still = checked_pairs(list(values), pairs)
    decisions = dict.fromkeys(still, Decision.undecided)
    interims: list[Interim] = []
    for name in {name for pair in still for name in pair}:
        if len(values[name]) < plan.seeds:
            raise UserError(
                f"{name} has {len(values[name])} seeds, and an interim takes {plan.seeds}: train "
                "more, or plan smaller interims before looking"
            )
    while still and len(interims) < plan.interims:
        wanted = (len(interims) + 1) * plan.seeds
        if min(len(values[name]) for pair in still for name in pair) < wanted:
            break
        interims.append(interim_of(values, plan, still, interims))
        decisions |= interims[-1].decided
        still = [pair for pair in still if decisions[pair] is Decision.undecided]
    if len(interims) == plan.interims:
        decisions |= dict.fromkeys(still, Decision.not_shown)
        still = []
    needing = tuple(name for name in values if any(name in pair for pair in still))
    return Sequential(plan, decisions, needing, tuple(interims), told(values, plan, interims))


def told(scores: Mapping[str, Floats], plan: Plan, interims: Sequence[Interim]) -> tuple[str, ...]:
    """Seeds that no interim looked at, and decisions that hang on the random permutations."""
    found = []
    for name, values in scores.items():
        used = max(
            (
                (place + 1) * plan.seeds
                for place, interim in enumerate(interims)
                if any(name in pair for pair in (*interim.decided, *interim.checked))
            ),
            default=0,
        )
        if used < len(values):
            found.append(f"{name}: the last {len(values) - used} of its seeds were not looked at")
    for place, interim in enumerate(interims):
        if interim.closest < CLOSE:
            found.append(
                f"interim {place + 1} was decided within {CLOSE:g} Monte Carlo errors: pass more "
                f"permutations than {interim.permutations}"
            )
    return tuple(found)

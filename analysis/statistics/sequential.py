"""Compare conditions while seeds are still being trained, by a group-sequential permutation test.

After AdaStop (arXiv:2306.10882): at each interim every condition that is still compared gets some
more seeds, labels are permuted within each interim's seeds, and the level is spent evenly over the
interims. A claim can be made as soon as it holds, and all claims hold together at the level.

AdaStop compares the largest difference of all pairs with one bound (`Bound.joint`, in `joint`). By
default each pair has a test of its own, and Holm's step-down shares the level (Ye and others 2013):
with few seeds a pair that differs by chance has a wide permutation distribution as well, and then
takes the bound for itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from numpy.typing import ArrayLike

from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.statistics.arrays import Floats, require_finite
from rlhf_lab_analysis.statistics.joint import joint_tests
from rlhf_lab_analysis.statistics.plans import (
    Bound,
    Decision,
    Pair,
    PairResult,
    Plan,
    direction,
    has_next,
)
from rlhf_lab_analysis.statistics.relabel import labelings, looks, sums_of

# Nearer than this to its level, a p-value of other random permutations may decide otherwise.
CLOSE = 3.0


@dataclass(frozen=True)
class Sequential:
    """Results of all pairs so far, which conditions need more seeds, and interims looked at."""

    plan: Plan
    pairs: Mapping[Pair, PairResult]
    need_more: tuple[str, ...]
    interims: int
    warnings: tuple[str, ...]

    @property
    def is_finished(self) -> bool:
        return not self.need_more


def sequential(
    scores: Mapping[str, ArrayLike], plan: Plan, pairs: Sequence[Pair] | None = None
) -> Sequential:
    """All interims that the seeds so far suffice for, replayed from the first one.

    scores: of each condition in the order of training. What an interim decided stays decided when
    more seeds come. Raises UserError if a condition has fewer seeds than one interim.
    """
    values = {name: require_finite(name, given, (1,)) for name, given in scores.items()}
    wanted = checked_pairs(list(values), pairs)
    require_interim(values, plan, wanted)
    test = holm_tests if plan.bound is Bound.holm else joint_tests
    found, still, interims = test(values, plan, wanted)
    if interims == plan.interims:
        for pair in still:
            found[pair] = replace(found[pair], decision=Decision.not_shown)
        still = []
    needing = tuple(name for name in values if any(name in pair for pair in still))
    return Sequential(plan, found, needing, interims, warnings_of(values, plan, found))


def holm_tests(
    scores: Mapping[str, Floats], plan: Plan, pairs: Sequence[Pair]
) -> tuple[dict[Pair, PairResult], list[Pair], int]:
    """A test of each pair at its share of the level: results, pairs still open, and interims."""
    found: dict[Pair, PairResult] = {}
    sums: dict[Pair, list[tuple[Floats, bool]]] = {pair: [] for pair in pairs}
    interims = 0
    while has_next(scores, plan, list(sums), interims):
        interims += 1
        labels, is_exact = labelings(plan.seeds, interims, plan.permutations, plan.seed)
        for first, second in sums:
            sums[first, second].append((sums_of(scores[first], scores[second], labels), is_exact))
        found |= step_down(scores, plan, sums, interims)
        for pair, result in found.items():
            if result.decision is not Decision.undecided:
                sums.pop(pair, None)
    return found, list(sums), interims


def step_down(
    scores: Mapping[str, Floats],
    plan: Plan,
    sums: Mapping[Pair, Sequence[tuple[Floats, bool]]],
    interims: int,
) -> dict[Pair, PairResult]:
    """Holm at one interim: each open pair at its share of the level, which grows with each pair
    that is rejected."""
    still, found = list(sums), {}
    while still:
        share = plan.alpha / len(still)
        seen = {pair: tuple(looks(sums[pair], share, plan.interims)) for pair in still}
        rejected = [pair for pair in still if seen[pair][-1].is_rejected]
        for pair in still:
            decision = (
                direction(scores, pair, interims * plan.seeds)
                if pair in rejected
                else Decision.undecided
            )
            found[pair] = PairResult(decision, interims, seen[pair])
        if not rejected:
            break
        still = [pair for pair in still if pair not in rejected]
    return found


def checked_pairs(names: Sequence[str], pairs: Sequence[Pair] | None) -> list[Pair]:
    """The given pairs, or all. Raises UserError for an unknown condition."""
    found = list(combinations(names, 2)) if pairs is None else list(pairs)
    for pair in found:
        if pair[0] == pair[1] or not {*pair} <= {*names}:
            raise UserError(f"pair {pair}: pass two of {', '.join(names)}")
    if not found:
        raise UserError("no pairs to compare: pass at least two conditions")
    return found


def require_interim(scores: Mapping[str, Floats], plan: Plan, pairs: Sequence[Pair]) -> None:
    """Raises UserError if a condition has fewer seeds than one interim."""
    for name in sorted({name for pair in pairs for name in pair}):
        if len(scores[name]) < plan.seeds:
            raise UserError(
                f"{name} has {len(scores[name])} seeds, and an interim takes {plan.seeds}: train "
                "more, or plan smaller interims before looking"
            )


def warnings_of(
    scores: Mapping[str, Floats], plan: Plan, found: Mapping[Pair, PairResult]
) -> tuple[str, ...]:
    """Warnings of seeds that no interim used, and of decisions that depend on the random
    permutations."""
    warnings = []
    for name, values in scores.items():
        looked = [result.interims for pair, result in found.items() if name in pair]
        if unused := len(values) - plan.seeds * max(looked, default=0):
            warnings.append(f"{name}: the last {unused} of its seeds were not looked at")
    for pair, result in found.items():
        if min(look.errors for look in result.looks) < CLOSE:
            warnings.append(
                f"{pair[0]} against {pair[1]}: a p-value within {CLOSE:g} Monte Carlo errors of "
                f"its level; pass more permutations than {plan.permutations}"
            )
    return tuple(warnings)

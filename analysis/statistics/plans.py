"""What a group-sequential comparison is planned as, and what it decides of a pair."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.statistics.arrays import Floats
from rlhf_lab_analysis.statistics.relabel import Look

Pair = tuple[str, str]


class Decision(StrEnum):
    """Of a pair: the first is larger, or smaller; no difference was shown; or seeds are wanted."""

    larger = "larger"
    smaller = "smaller"
    not_shown = "no difference shown"
    undecided = "more seeds"


class Bound(StrEnum):
    """How the pairs share the level.

    holm: each pair has a test of its own at its share. joint: one bound for the largest size of a
    difference of all open pairs, as AdaStop's paper has it. adastop: the same against differences
    with their sign, as adastop 0.1.3 computes it, where about twice the level is used.
    """

    holm = "holm"
    joint = "joint"
    adastop = "adastop"


@dataclass(frozen=True)
class Plan:
    """What is fixed before the first seed: seeds of an interim, interims, level, permutations, and
    how pairs share the level."""

    seeds: int = 5
    interims: int = 5
    alpha: float = 0.05
    permutations: int = 100_000
    seed: int = 0
    bound: Bound = Bound.holm

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
class PairResult:
    """What was decided of a pair, after how many interims, and its looks at its last level."""

    decision: Decision
    interims: int
    looks: tuple[Look, ...]


def has_next(
    scores: Mapping[str, Floats], plan: Plan, still: Sequence[Pair], interims: int
) -> bool:
    """Whether an interim is left and some pair open, and all open ones have seeds for it."""
    seeds = [len(scores[name]) for pair in still for name in pair]
    is_left = interims < plan.interims
    return is_left and bool(seeds) and min(seeds) >= (interims + 1) * plan.seeds


def direction(scores: Mapping[str, Floats], pair: Pair, seeds: int) -> Decision:
    """Which of a pair is larger over its first seeds."""
    first, second = (float(scores[name][:seeds].mean()) for name in pair)
    return Decision.larger if first > second else Decision.smaller

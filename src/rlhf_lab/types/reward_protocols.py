"""The interfaces of rewards and judges; those marked `runtime_checkable` are optional."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from rlhf_lab.types.data import Verdict
from rlhf_lab.types.samples import Group


@runtime_checkable
class Reward(Protocol):
    """Scores groups: one float per sample, in order. Judges are rewards too.

    An empty tuple: the group could not be scored (a judge failed, a verifier took too long). Such a
    group is dropped and counted; a failure is never turned into a number.
    """

    def score(self, groups: Sequence[Group]) -> list[tuple[float, ...]]: ...


@runtime_checkable
class Stepwise(Protocol):
    """A reward that also scores the single steps of a sample (process rewards)."""

    def scored(self, groups: Sequence[Group]) -> list[Group]:
        """The groups with their rewards (those of `score`) and step rewards."""
        ...


@runtime_checkable
class Abstaining(Protocol):
    """A reward that may leave samples to others."""

    def partial_scores(self, groups: Sequence[Group]) -> list[tuple[float | None, ...]]:
        """The rewards of `score`, with None for a sample that it leaves to others."""
        ...


def scored_groups(reward: Reward, groups: Sequence[Group]) -> list[Group]:
    """The groups with their rewards, and with step rewards where the reward has them."""
    if isinstance(reward, Stepwise):
        return reward.scored(groups)
    rows = reward.score(groups)
    return [group.scored(row) for group, row in zip(groups, rows, strict=True)]


@runtime_checkable
class Metered(Protocol):
    """A reward with counts for the ledger, such as calls of a judge and their failures."""

    def drain(self) -> Mapping[str, int]:
        """Counts since the last call, under names for the ledger, such as judge_calls."""
        ...


@runtime_checkable
class Comparing(Protocol):
    """A judge that compares two texts instead of scoring one."""

    def compare(
        self, groups: Sequence[Group], references: Sequence[Group]
    ) -> list[tuple[Verdict, ...]]:
        """One verdict per sample against the only sample of the prompt's reference group, in
        order; an empty tuple for a group that could not be judged."""
        ...

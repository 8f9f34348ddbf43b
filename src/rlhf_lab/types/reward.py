"""The interface of rewards and judges: what scores groups of samples."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

from rlhf_lab.types.data import Verdict
from rlhf_lab.types.samples import Group, Steps


class Reward(ABC):
    """Scores groups; judges are rewards too. A subclass writes `score`, and overrides what else it
    can do.

    compares: whether it is a judge that compares two texts, by `compare`.
    """

    compares: ClassVar[bool] = False

    @property
    def called(self) -> str:
        """What is called, in messages about a call that takes long."""
        return type(self).__name__

    @abstractmethod
    def score(self, groups: Sequence[Group]) -> list[tuple[float, ...]]:
        """One float per sample, in order.

        An empty tuple: the group could not be scored (a judge failed, a verifier took too long).
        Such a group is dropped and counted; a failure is never turned into a number.
        """

    def scored(self, groups: Sequence[Group]) -> list[Group]:
        """The groups with their rewards (those of `score`), and with step rewards where it scores
        the single steps of a sample."""
        rows = self.score(groups)
        return [group.scored(row) for group, row in zip(groups, rows, strict=True)]

    def as_term(
        self, groups: Sequence[Group]
    ) -> list[tuple[tuple[float | None, ...], Sequence[Steps]]]:
        """Rewards and step rewards of each group as a term of a sum: None for a sample that it
        leaves to the other terms."""
        return [(group.rewards, group.step_rewards) for group in self.scored(groups)]

    def drain(self) -> Mapping[str, int]:
        """Counts since the last call, under names for the ledger, such as judge_calls."""
        return {}

    def compare(
        self, groups: Sequence[Group], references: Sequence[Group]
    ) -> list[tuple[Verdict, ...]]:
        """One verdict per sample against the only sample of the prompt's reference group, in
        order; an empty tuple for a group that could not be judged."""
        raise NotImplementedError(f"{type(self).__name__} scores single texts")

"""`reward=environment`: what the environment of an episode gave for its turns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rlhf_lab.rewards.options import RewardOptions
from rlhf_lab.types import limits
from rlhf_lab.types.samples import Group, Steps


@dataclass(frozen=True)
class EnvironmentReward(RewardOptions):
    """The sum of the rewards that an episode's turns had; algorithms with values per token get
    each where its turn ends."""

    name: str = limits.name("environment")
    reads_example: ClassVar[bool] = True


class EnvironmentScorer:
    """Scores episodes. A group without them, such as reference answers, has no score."""

    def score(self, groups: Sequence[Group]) -> list[tuple[float, ...]]:
        """One float per sample, in order."""
        return [
            tuple(sample.episode.reward for sample in group.samples if sample.episode)
            for group in groups
        ]

    def scored(self, groups: Sequence[Group]) -> list[Group]:
        """The groups with their rewards, and with those of single turns as step rewards."""
        rows = self.score(groups)
        return [group.scored(row, turns_of(group)) for group, row in zip(groups, rows, strict=True)]


def turns_of(group: Group) -> list[Steps]:
    """The rewards of the turns of each episode."""
    return [sample.episode.turns for sample in group.samples if sample.episode]

"""Rewards that come with the data: the task's rule, its environment, preferences of fixed pairs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rlhf_lab.rewards import fields
from rlhf_lab.rewards.limited import OnError, SampleScorer
from rlhf_lab.rewards.options import RewardContext, RewardOptions
from rlhf_lab.tasks.task_options import Task
from rlhf_lab.types import limits
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.reward import Reward
from rlhf_lab.types.samples import Example, Group, Steps


@dataclass(frozen=True)
class RuleReward(RewardOptions):
    """The task's own rule scores responses, without a model."""

    name: str = limits.name("task_rule")
    workers: int = fields.workers()
    time_limit_s: float = fields.time_limit_s()
    on_error: OnError = fields.on_error()
    is_rule: ClassVar[bool] = True
    reads_example: ClassVar[bool] = True

    def build(self, context: RewardContext) -> RuleScorer:
        return RuleScorer(context.task, self)


class RuleScorer(SampleScorer):
    """Scores by `task.judge`. It sees what is hidden from the policy and from a reward model."""

    def __init__(self, task: Task, options: RuleReward | None = None) -> None:
        options = options or RuleReward()
        workers = options.workers or None
        super().__init__(task.judge, options.time_limit_s, options.on_error, workers=workers)


@dataclass(frozen=True)
class EnvironmentReward(RewardOptions):
    """The sum of the rewards that an episode's turns had; algorithms with values per token get
    each where its turn ends."""

    name: str = limits.name("environment")
    reads_example: ClassVar[bool] = True
    needs_episodes: ClassVar[bool] = True

    def build(self, context: RewardContext) -> EnvironmentScorer:
        return EnvironmentScorer()


class EnvironmentScorer(Reward):
    """Scores episodes. A group without them, such as reference answers, has no score."""

    def score(self, groups: Sequence[Group]) -> list[tuple[float, ...]]:
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


class PreferenceScorer(Reward):
    """The rewards of chosen and rejected: 1 and 0, or the numbers of the fields chosen_NAME and
    rejected_NAME of each row."""

    def __init__(self, name: str = "") -> None:
        self._name = name

    def score(self, groups: Sequence[Group]) -> list[tuple[float, ...]]:
        return [self.rewards(group.prompt.example) for group in groups]

    def rewards(self, example: Example) -> tuple[float, float]:
        """The two rewards of a pair. Raises UserError if a field is missing or no finite number."""
        if not self._name:
            return 1.0, 0.0
        chosen, rejected = (self._number(example, side) for side in ("chosen", "rejected"))
        return chosen, rejected

    def _number(self, example: Example, side: str) -> float:
        field = f"{side}_{self._name}"
        value = example.hidden.get(field)
        if not isinstance(value, int | float) or not math.isfinite(value):
            raise UserError(
                f"generator.scores={self._name}: pair {example.uid} has no finite number in field "
                f"{field}; write it, or pass generator.scores='' for rewards of 1 and 0"
            )
        return float(value)

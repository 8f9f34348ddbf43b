"""The task's own rule as a reward: the gold judge of tldr_nano, the exact answer of gsm8k."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rlhf_lab.rewards import fields
from rlhf_lab.rewards.limited import OnError, SampleScorer
from rlhf_lab.rewards.options import RewardOptions
from rlhf_lab.tasks.protocols import Task
from rlhf_lab.types import limits


@dataclass(frozen=True)
class RuleReward(RewardOptions):
    """The task's own rule scores responses, without a model."""

    name: str = limits.name("task_rule")
    workers: int = fields.workers()
    time_limit_s: float = fields.time_limit_s()
    on_error: OnError = fields.on_error()
    is_rule: ClassVar[bool] = True
    reads_example: ClassVar[bool] = True


class RuleScorer(SampleScorer):
    """Scores by `task.judge`. It sees what is hidden from the policy and from a reward model."""

    def __init__(self, task: Task, options: RuleReward | None = None) -> None:
        options = options or RuleReward()
        workers = options.workers or None
        super().__init__(task.judge, options.time_limit_s, options.on_error, workers=workers)

"""The task's own rule as a reward: the gold judge of tldr_nano, the exact answer of gsm8k."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rlhf_lab.rewards.limited import OnError, SampleScorer
from rlhf_lab.rewards.options import RewardOptions
from rlhf_lab.types import limits
from rlhf_lab.types.protocols import Task


@dataclass(frozen=True)
class RuleReward(RewardOptions):
    """Config option `reward=task_rule`: no model, no penalty beyond the rule's own.

    time_limit_s: of one sample; above 0 the rule runs in a process of its own, which is killed when
    time is up; 0 is none. on_error: a sample for which the rule raises or runs out of time stops
    the run, or leaves its group unscored and is counted.
    """

    name: str = "task_rule"
    time_limit_s: float = limits.seconds(0.0, also={0: "for none"})
    on_error: OnError = OnError.stop
    is_rule: ClassVar[bool] = True
    reads_example: ClassVar[bool] = True


class RuleScorer(SampleScorer):
    """Scores by `task.judge`. It sees what is hidden from the policy and from a reward model."""

    def __init__(self, task: Task, options: RuleReward | None = None) -> None:
        options = options or RuleReward()
        super().__init__(task.judge, options.time_limit_s, options.on_error)

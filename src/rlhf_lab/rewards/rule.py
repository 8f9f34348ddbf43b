"""The task's own rule as a reward: the gold judge of tldr_nano, the exact answer of gsm8k."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlhf_lab.types import Finish, Group, Task


@dataclass(frozen=True)
class RuleReward:
    """Config option `reward=task_rule`: no model, no penalty beyond the rule's own."""

    name: str = "task_rule"


class RuleScorer:
    """Scores by `task.judge`. It sees what is hidden from the policy and from a reward model."""

    def __init__(self, task: Task) -> None:
        self._task = task

    def score(self, groups: Sequence[Group]) -> list[tuple[float, ...]]:
        """One float per sample, in order."""
        return [
            tuple(
                self._task.judge(group.prompt.example, s.text, s.finish is Finish.eos)
                for s in group.samples
            )
            for group in groups
        ]

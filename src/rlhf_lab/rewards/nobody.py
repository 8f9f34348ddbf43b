"""`reward@judge=none`: nobody judges, and evaluation reports the reward alone."""

from __future__ import annotations

from dataclasses import dataclass

from rlhf_lab.rewards.options import RewardOptions
from rlhf_lab.types import limits


@dataclass(frozen=True)
class NoJudge(RewardOptions):
    """No judge: evaluation reports the mean reward, and no measure that needs a judge."""

    name: str = limits.name("none")

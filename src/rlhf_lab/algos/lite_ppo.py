"""Lite PPO: group mean, deviation of the whole batch, token mean (arXiv:2508.08221, section 5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from rlhf_lab.algos import fields
from rlhf_lab.algos.advantages import Deviation, scaled
from rlhf_lab.algos.common import keep_all, per_token, token_surrogate
from rlhf_lab.types import limits
from rlhf_lab.types.data import Batch, Credit, LossOutput, Needs, Objective, PolicyOutput, Reduction

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class LitePPO(limits.Limited, key="algo"):
    """PPO's clipped loss without a value model."""

    name: str = limits.name("lite_ppo")
    clip: float = fields.clip(0.2)
    epsilon: float = fields.epsilon("round")
    reduction: Reduction = fields.reduction(Reduction.token_mean)
    objective: ClassVar[Objective] = Objective.token_ratio
    needs: ClassVar[Needs] = Needs(group_size=2)

    def credit(self, reward_PG: Tensor, batch: Batch) -> Credit:
        """Reward less the group mean, over the standard deviation of all of the round's rewards."""
        advantage_PG = scaled(reward_PG, Deviation.batch, self.epsilon)
        return Credit(per_token(advantage_PG, batch), keep_B=keep_all(reward_PG))

    def loss(self, policy: PolicyOutput, batch: Batch) -> LossOutput:
        """Clipped surrogate per token."""
        return token_surrogate(policy, batch, self.clip, self.clip)

"""Lite PPO: group mean, deviation of the whole batch, token mean (arXiv:2508.08221, section 5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from rlhf_lab.algos import fields
from rlhf_lab.algos.advantages import Deviation, scaled
from rlhf_lab.algos.common import keep_all, per_token, token_surrogate
from rlhf_lab.algos.kl import KLLocation, KLPenalty
from rlhf_lab.types import limits
from rlhf_lab.types.data import Batch, Credit, LossOutput, Needs, Objective, PolicyOutput, Reduction

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class LitePPO(KLPenalty):
    """PPO's clipped loss without a value model."""

    name: str = limits.name("lite_ppo")
    clip: float = fields.clip(0.2)
    epsilon: float = fields.epsilon("round")
    kl_coef: float = fields.kl_in_loss(0.0, source="the paper has none")
    reduction: Reduction = fields.reduction(Reduction.token_mean)
    own_location: ClassVar[KLLocation] = KLLocation.loss
    objective: ClassVar[Objective] = Objective.token_ratio
    own_needs: ClassVar[Needs] = Needs(group_size=2)

    def credit(self, reward_PG: Tensor, batch: Batch) -> Credit:
        """Reward less the group mean, over the standard deviation of all of the round's rewards."""
        advantage_PG = scaled(self.less_kl(reward_PG, batch), Deviation.batch, self.epsilon)
        return Credit(per_token(advantage_PG, batch), keep_B=keep_all(reward_PG))

    def loss(self, policy: PolicyOutput, batch: Batch) -> LossOutput:
        """Clipped surrogate per token."""
        output = token_surrogate(policy, batch, self.clip, self.clip)
        return self.plus_kl(output, policy, batch)

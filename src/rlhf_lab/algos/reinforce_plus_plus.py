"""REINFORCE++: whitened rewards-to-go with KL per token, PPO's clip (arXiv:2501.03262)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from rlhf_lab.algos import fields
from rlhf_lab.algos.advantages import to_go, whitened
from rlhf_lab.algos.common import keep_all, token_surrogate
from rlhf_lab.algos.kl import KLPenalty
from rlhf_lab.types import limits
from rlhf_lab.types.data import Batch, Credit, LossOutput, Needs, Objective, PolicyOutput, Reduction

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class ReinforcePlusPlus(KLPenalty):
    """REINFORCE++: rewards-to-go of tokens, whitened over the round, under PPO's clip."""

    name: str = limits.name("reinforce_plus_plus")
    kl_coef: float = fields.kl_in_reward(0.01)
    clip: float = fields.clip(0.2)
    reduction: Reduction = fields.reduction(Reduction.token_mean)
    objective: ClassVar[Objective] = Objective.token_ratio
    own_needs: ClassVar[Needs] = Needs()

    def credit(self, reward_PG: Tensor, batch: Batch) -> Credit:
        """Reward less the KL of this token and all later ones, whitened over the round."""
        return_BT = to_go(self.token_rewards(reward_PG, batch))
        return Credit(whitened(return_BT, batch.mask_BT), keep_B=keep_all(reward_PG))

    def loss(self, policy: PolicyOutput, batch: Batch) -> LossOutput:
        """Clipped surrogate per token."""
        output = token_surrogate(policy, batch, self.clip, self.clip)
        return self.plus_kl(output, policy, batch)

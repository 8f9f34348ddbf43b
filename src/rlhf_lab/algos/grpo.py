"""GRPO: group-standardised reward, clipped token ratio, k3 KL (arXiv:2402.03300, eq. 3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from rlhf_lab.algos import fields
from rlhf_lab.algos.advantages import standardised
from rlhf_lab.algos.common import keep_all, kl_penalty, per_token, token_surrogate
from rlhf_lab.types import limits
from rlhf_lab.types.data import Batch, Credit, LossOutput, Needs, Objective, PolicyOutput, Reduction

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class GRPO(limits.Limited, key="algo"):
    """GRPO: rewards standardised within each group, PPO's clip, and KL as a term of the loss."""

    name: str = limits.name("grpo")
    clip: float = fields.clip(0.2)
    kl_coef: float = fields.kl_in_loss(0.04, source="arXiv:2402.03300, eq. 4")
    epsilon: float = fields.epsilon()
    reduction: Reduction = fields.reduction(Reduction.sequence_mean)
    objective: ClassVar[Objective] = Objective.token_ratio
    needs: ClassVar[Needs] = Needs(group_size=2)

    def credit(self, reward_PG: Tensor, batch: Batch) -> Credit:
        """Reward less the group mean, over the group's standard deviation plus epsilon."""
        advantage_PG = standardised(reward_PG, self.epsilon)
        return Credit(per_token(advantage_PG, batch), keep_B=keep_all(reward_PG))

    def loss(self, policy: PolicyOutput, batch: Batch) -> LossOutput:
        """Clipped surrogate per token plus the KL penalty."""
        output = token_surrogate(policy, batch, self.clip, self.clip)
        penalty = kl_penalty(policy, batch, self.kl_coef)
        return LossOutput(output.loss + penalty, clipped_BT=output.clipped_BT)

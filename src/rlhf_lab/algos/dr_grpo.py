"""Dr. GRPO: GRPO without its two biases, length and deviation (arXiv:2503.20783, section 3.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from rlhf_lab.algos import fields
from rlhf_lab.algos.advantages import centred
from rlhf_lab.algos.common import keep_all, per_token, token_surrogate
from rlhf_lab.algos.kl import KLLocation, KLPenalty
from rlhf_lab.types import limits
from rlhf_lab.types.data import Batch, Credit, LossOutput, Needs, Objective, PolicyOutput, Reduction

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class DrGRPO(KLPenalty):
    """GRPO without the division by the group's deviation and by the response's length."""

    name: str = limits.name("dr_grpo")
    clip: float = fields.clip(0.2)
    kl_coef: float = fields.kl_in_loss(0.0, source="the paper has none")
    reduction: Reduction = fields.reduction(Reduction.per_limit)
    own_location: ClassVar[KLLocation] = KLLocation.loss
    objective: ClassVar[Objective] = Objective.token_ratio
    own_needs: ClassVar[Needs] = Needs(group_size=2, scales_with_reward=True)

    def credit(self, reward_PG: Tensor, batch: Batch) -> Credit:
        """Reward less the group mean."""
        return Credit(
            per_token(centred(self.less_kl(reward_PG, batch)), batch), keep_B=keep_all(reward_PG)
        )

    def loss(self, policy: PolicyOutput, batch: Batch) -> LossOutput:
        """Clipped surrogate per token, plus the KL penalty if there is one."""
        output = token_surrogate(policy, batch, self.clip, self.clip)
        return self.plus_kl(output, policy, batch)

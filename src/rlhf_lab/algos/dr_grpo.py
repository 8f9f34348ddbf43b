"""Dr. GRPO: GRPO without its two biases, length and deviation (arXiv:2503.20783, section 3.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from rlhf_lab.algos.advantages import centred
from rlhf_lab.algos.common import keep_all, kl_penalty, per_token, token_surrogate
from rlhf_lab.types import limits
from rlhf_lab.types.data import Batch, Credit, LossOutput, Needs, Objective, PolicyOutput, Reduction


@dataclass(frozen=True)
class DrGRPO(limits.Limited, key="algo"):
    """clip: token ratio within 1 +- it. kl_coef: as in grpo; the paper has none.

    Tokens count alike whatever their row's length: reduction=per_limit divides by the limit.
    """

    name: str = "dr_grpo"
    clip: float = limits.share(0.2)
    kl_coef: float = limits.number(0.0, least=0, most=100)
    reduction: Reduction = Reduction.per_limit
    objective: ClassVar[Objective] = Objective.token_ratio
    needs: ClassVar[Needs] = Needs(group_size=2)

    def credit(self, reward_PG: Tensor, batch: Batch) -> Credit:
        """Reward less the group mean."""
        return Credit(per_token(centred(reward_PG), batch), keep_B=keep_all(reward_PG))

    def loss(self, policy: PolicyOutput, batch: Batch) -> LossOutput:
        """Clipped surrogate per token, plus the KL penalty if there is one."""
        output = token_surrogate(policy, batch, self.clip, self.clip)
        penalty = kl_penalty(policy, batch, self.kl_coef)
        return LossOutput(output.loss + penalty, clipped_BT=output.clipped_BT)

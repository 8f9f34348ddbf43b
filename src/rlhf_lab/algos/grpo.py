"""GRPO: group-standardised reward, clipped token ratio, k3 KL (arXiv:2402.03300, eq. 3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from rlhf_lab.algos.common import clipped_surrogate, k3, keep_all, per_token, require_in
from rlhf_lab.types import Batch, Credit, LossOutput, PolicyOutput, Reduction


@dataclass(frozen=True)
class GRPO:
    """clip: token ratio within 1 +- it. kl_coef: weight of KL(policy || reference), per token."""

    name: str = "grpo"
    clip: float = 0.2
    kl_coef: float = 0.04
    epsilon: float = 1e-4
    reduction: Reduction = Reduction.sequence_mean
    min_group_size: ClassVar[int] = 2

    def __post_init__(self) -> None:
        require_in("algo.clip", self.clip, 0.0, 1.0)
        require_in("algo.kl_coef", self.kl_coef, 0.0, 100.0)
        require_in("algo.epsilon", self.epsilon, 1e-12, 1.0)

    def credit(self, reward_PG: Tensor, batch: Batch) -> Credit:
        """Reward less the group mean, over the group's standard deviation plus epsilon."""
        centred_PG = reward_PG - reward_PG.mean(dim=1, keepdim=True)
        advantage_PG = centred_PG / (reward_PG.std(dim=1, keepdim=True) + self.epsilon)
        return Credit(per_token(advantage_PG, batch), keep_B=keep_all(reward_PG))

    def loss(self, policy: PolicyOutput, batch: Batch) -> LossOutput:
        """Clipped surrogate per token plus the KL penalty."""
        ratio_BT = (policy.logp_BT - batch.behavior_logp_BT).exp()
        surrogate_BT, clipped_BT = clipped_surrogate(
            ratio_BT, batch.credit_BT, self.clip, self.clip
        )
        kl_BT = k3(policy.logp_BT, batch.reference_logp_BT)
        loss = ((surrogate_BT + self.kl_coef * kl_BT) * batch.weight_BT).sum()
        return LossOutput(loss, clipped_BT=clipped_BT)

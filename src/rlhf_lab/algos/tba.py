"""TBA: trajectory balance over a group of samples, in its VarGrad form (arXiv:2503.18929)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from rlhf_lab.algos import fields
from rlhf_lab.algos.advantages import centred
from rlhf_lab.algos.common import (
    grouped,
    keep_all,
    per_token,
    sequence_sum,
    sequence_value,
    sequence_weight,
)
from rlhf_lab.algos.options import AlgorithmOptions
from rlhf_lab.types import limits
from rlhf_lab.types.data import Batch, Credit, LossOutput, Needs, Objective, PolicyOutput, Reduction

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class TBA(AlgorithmOptions):
    """Half the variance over a group of the log-ratio to the reference less reward over beta: zero
    where the policy is reference times exp(reward / beta), whoever wrote the samples. Its gradient
    is that of copg times (K - 1) / (K beta)."""

    name: str = limits.name("tba")
    beta: float = fields.beta(
        "Temperature: the reward that one nat of log-ratio to the reference is worth.",
        source="arXiv:2503.18929, section 3",
    )
    reduction: Reduction = fields.reduction(Reduction.sequence_mean)
    objective: ClassVar[Objective] = Objective.comparison
    needs: ClassVar[Needs] = Needs(group_size=2, reference=True, scales_with_reward=True)

    def credit(self, reward_PG: Tensor, batch: Batch) -> Credit:
        """Reward over beta, less the group mean."""
        return Credit(per_token(centred(reward_PG) / self.beta, batch), keep_B=keep_all(reward_PG))

    def loss(self, policy: PolicyOutput, batch: Batch) -> LossOutput:
        """Half the squared difference of log-ratio and credit, both less their group means. The
        group mean stands for the log of the normalising constant."""
        away_B = sequence_sum(policy.logp_BT - batch.reference_logp_BT, batch)
        away_PG = grouped(away_B, batch)
        # Not `centred`: equal log-ratios, as at the start, have a gradient.
        far_B = (away_PG - away_PG.mean(dim=1, keepdim=True)).flatten()
        gap_B = far_B - sequence_value(batch.credit_BT, batch)
        return LossOutput(0.5 * (gap_B.square() * sequence_weight(batch)).sum())

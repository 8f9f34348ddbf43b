"""CoPG: regularised rewards contrasted within a prompt, off-policy (arXiv:2406.19185)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from rlhf_lab.algos import fields
from rlhf_lab.algos.advantages import leave_one_out
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
class CoPG(AlgorithmOptions):
    """The gradient is that of the mean squared difference of regularised rewards over pairs,
    divided by 4 beta; its optimum does not depend on the policy that wrote the samples."""

    name: str = limits.name("copg")
    beta: float = fields.beta(
        "Reward subtracted for each nat of the policy's log-ratio to the reference."
    )
    reduction: Reduction = fields.reduction(Reduction.sequence_mean)
    objective: ClassVar[Objective] = Objective.comparison
    needs: ClassVar[Needs] = Needs(group_size=2, reference=True, scales_with_reward=True)

    def credit(self, reward_PG: Tensor, batch: Batch) -> Credit:
        """The reward itself, less the mean of the group's others; the loss adds the KL."""
        return Credit(per_token(leave_one_out(reward_PG), batch), keep_B=keep_all(reward_PG))

    def loss(self, policy: PolicyOutput, batch: Batch) -> LossOutput:
        """Log-likelihood of responses, weighted by reward less beta log-ratio less the others'."""
        logp_B = sequence_sum(policy.logp_BT, batch)
        away_B = (logp_B - sequence_sum(batch.reference_logp_BT, batch)).detach()
        away_PG = leave_one_out(grouped(away_B, batch))
        contrast_B = sequence_value(batch.credit_BT, batch) - self.beta * away_PG.flatten()
        return LossOutput(-(contrast_B * logp_B * sequence_weight(batch)).sum())

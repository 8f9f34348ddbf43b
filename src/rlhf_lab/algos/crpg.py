"""CRPG: policy gradient on calibrated rewards under constraints (arXiv:2409.20370)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from rlhf_lab.algos import fields
from rlhf_lab.algos.advantages import centred_in_round
from rlhf_lab.algos.common import credited_likelihood, keep_all, per_token
from rlhf_lab.algos.constrained import kl_max, kl_of
from rlhf_lab.algos.options import AlgorithmOptions
from rlhf_lab.types import limits
from rlhf_lab.types.data import Batch, Credit, LossOutput, Needs, Objective, PolicyOutput, Reduction

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class CRPG(AlgorithmOptions):
    """Rewards shrink to 0 as a sample gets kl_max from the reference, less their mean."""

    name: str = limits.name("crpg")
    kl_max: float = kl_max()
    reduction: Reduction = fields.reduction(Reduction.sequence_mean)
    objective: ClassVar[Objective] = Objective.likelihood
    needs: ClassVar[Needs] = Needs(reference=True, scales_with_reward=True, constraints=True)

    def credit(self, reward_PG: Tensor, batch: Batch) -> Credit:
        """Reward times max(0, 1 - KL / kl_max), less its mean over the round."""
        near_PG = (1 - kl_of(reward_PG, batch) / self.kl_max).clamp(min=0)
        earned_PG = reward_PG * near_PG
        return Credit(per_token(centred_in_round(earned_PG), batch), keep_B=keep_all(reward_PG))

    def loss(self, policy: PolicyOutput, batch: Batch) -> LossOutput:
        """Minus the log-likelihood of whole responses times their credit."""
        return credited_likelihood(policy, batch)

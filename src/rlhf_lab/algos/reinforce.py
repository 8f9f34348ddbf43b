"""REINFORCE: log-likelihood weighted by reward less a baseline (arXiv:2402.14740, eq. 7)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from rlhf_lab.algos import fields
from rlhf_lab.algos.advantages import centred_in_round
from rlhf_lab.algos.common import credited_likelihood, keep_all, per_token
from rlhf_lab.algos.kl import KLPenalty
from rlhf_lab.types import limits
from rlhf_lab.types.data import Batch, Credit, LossOutput, Needs, Objective, PolicyOutput, Reduction

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class REINFORCE(KLPenalty):
    """REINFORCE with one reward per response and an optional mean baseline."""

    name: str = limits.name("reinforce")
    kl_coef: float = fields.kl_in_reward(0.05)
    baseline: bool = limits.option(
        True, about="Whether the mean reward of the round's samples is subtracted."
    )
    reduction: Reduction = fields.reduction(Reduction.sequence_mean)
    objective: ClassVar[Objective] = Objective.likelihood
    own_needs: ClassVar[Needs] = Needs(scales_with_reward=True)

    def credit(self, reward_PG: Tensor, batch: Batch) -> Credit:
        """Reward less KL, less the mean of the same over the round."""
        return_PG = self.less_kl(reward_PG, batch)
        advantage_PG = centred_in_round(return_PG) if self.baseline else return_PG
        return Credit(per_token(advantage_PG, batch), keep_B=keep_all(reward_PG))

    def loss(self, policy: PolicyOutput, batch: Batch) -> LossOutput:
        """Minus the log-likelihood of whole responses, weighted by credit."""
        return self.plus_kl(credited_likelihood(policy, batch), policy, batch)

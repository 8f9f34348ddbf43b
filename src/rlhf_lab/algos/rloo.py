"""RLOO: leave-one-out baseline, plain log-likelihood (arXiv:2402.14740, section 2.3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from rlhf_lab.algos import fields
from rlhf_lab.algos.advantages import leave_one_out
from rlhf_lab.algos.common import credited_likelihood, keep_all, per_token
from rlhf_lab.algos.kl import KLPenalty
from rlhf_lab.types import limits
from rlhf_lab.types.data import Batch, Credit, LossOutput, Needs, Objective, PolicyOutput, Reduction

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class RLOO(KLPenalty):
    """RLOO: the baseline of a sample is the mean reward of the others of its group."""

    name: str = limits.name("rloo")
    kl_coef: float = fields.kl_in_reward(0.05)
    reduction: Reduction = fields.reduction(Reduction.sequence_mean)
    objective: ClassVar[Objective] = Objective.likelihood
    own_needs: ClassVar[Needs] = Needs(group_size=2, scales_with_reward=True)

    def credit(self, reward_PG: Tensor, batch: Batch) -> Credit:
        """Reward less KL, less the mean of the same over the group's other samples."""
        advantage_PG = leave_one_out(self.less_kl(reward_PG, batch))
        return Credit(per_token(advantage_PG, batch), keep_B=keep_all(reward_PG))

    def loss(self, policy: PolicyOutput, batch: Batch) -> LossOutput:
        """Minus the log-likelihood of whole responses, weighted by credit."""
        return self.plus_kl(credited_likelihood(policy, batch), policy, batch)

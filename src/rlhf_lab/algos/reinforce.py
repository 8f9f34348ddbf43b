"""REINFORCE: log-likelihood weighted by reward less a baseline (arXiv:2402.14740, eq. 7)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from rlhf_lab.algos.advantages import less_kl
from rlhf_lab.algos.common import credited_likelihood, keep_all, per_token
from rlhf_lab.types import limits
from rlhf_lab.types.data import Batch, Credit, LossOutput, Needs, Objective, PolicyOutput, Reduction


@dataclass(frozen=True)
class REINFORCE(limits.Limited, key="algo"):
    """kl_coef: reward lost per nat of KL to the reference (k1).

    baseline: subtract the mean over the round's samples; false is the estimator without one.
    """

    name: str = "reinforce"
    kl_coef: float = limits.number(0.05, least=0, most=100)
    baseline: bool = True
    reduction: Reduction = Reduction.sequence_mean
    objective: ClassVar[Objective] = Objective.likelihood
    needs: ClassVar[Needs] = Needs()

    def credit(self, reward_PG: Tensor, batch: Batch) -> Credit:
        """Reward less KL, less the mean of the same over the round."""
        return_PG = less_kl(reward_PG, self.kl_coef, batch)
        advantage_PG = return_PG - return_PG.mean() if self.baseline else return_PG
        return Credit(per_token(advantage_PG, batch), keep_B=keep_all(reward_PG))

    def loss(self, policy: PolicyOutput, batch: Batch) -> LossOutput:
        """Minus the log-likelihood of whole responses, weighted by credit."""
        return credited_likelihood(policy, batch)

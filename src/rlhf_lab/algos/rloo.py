"""RLOO: the mean of a group's other samples is the baseline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from rlhf_lab.algos import fields
from rlhf_lab.algos.advantages import leave_one_out
from rlhf_lab.algos.common import (
    credited_likelihood,
    keep_all,
    log_ratio_of_responses,
    per_token,
    response_surrogate,
)
from rlhf_lab.algos.kl import KLPenalty
from rlhf_lab.algos.off_policy import ratio_of
from rlhf_lab.types import limits
from rlhf_lab.types.data import Batch, Credit, LossOutput, Needs, Objective, PolicyOutput, Reduction

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class RLOO(KLPenalty):
    """RLOO: leave-one-out baseline, plain log-likelihood (arXiv:2402.14740, section 2.3).

    The baseline of a sample is the mean reward of the others of its group."""

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


@dataclass(frozen=True)
class ProximalRLOO(KLPenalty):
    """Proximal RLOO: leave-one-out baseline, clipped sequence ratio (arXiv:2410.18252, sec. 3.3).

    RLOO's credit under a clipped ratio of whole responses."""

    name: str = limits.name("proximal_rloo")
    kl_coef: float = fields.kl_in_reward(0.05)
    clip: float = fields.clip(0.2, of="response's")
    reduction: Reduction = fields.reduction(Reduction.sequence_mean)
    objective: ClassVar[Objective] = Objective.sequence_ratio
    own_needs: ClassVar[Needs] = Needs(group_size=2, scales_with_reward=True)

    def credit(self, reward_PG: Tensor, batch: Batch) -> Credit:
        """Reward less KL, less the mean of the same over the group's other samples."""
        advantage_PG = leave_one_out(self.less_kl(reward_PG, batch))
        return Credit(per_token(advantage_PG, batch), keep_B=keep_all(reward_PG))

    def loss(self, policy: PolicyOutput, batch: Batch) -> LossOutput:
        """Clipped surrogate on whole-sequence ratios to the proximal policy."""
        ratio_B = ratio_of(log_ratio_of_responses(policy, batch))
        output = response_surrogate(ratio_B, batch, self.clip, self.clip)
        return self.plus_kl(output, policy, batch)

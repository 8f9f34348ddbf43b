"""VCPO: the baseline of least variance for samples of other policies (arXiv:2602.17616)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from rlhf_lab.algos import fields
from rlhf_lab.algos.advantages import above
from rlhf_lab.algos.common import (
    grouped,
    keep_all,
    log_ratio_of_responses,
    per_token,
    sequence_sum,
    sequence_value,
    sequence_weight,
)
from rlhf_lab.algos.kl import KLPenalty
from rlhf_lab.algos.off_policy import ratio_of
from rlhf_lab.types import limits
from rlhf_lab.types.data import Batch, Credit, LossOutput, Needs, Objective, PolicyOutput, Reduction

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class VCPO(KLPenalty):
    """REINFORCE with capped ratios of whole responses, and a baseline that weighs each reward of a
    group by the squared norm of its ratio's gradient."""

    name: str = limits.name("vcpo")
    cap: float = limits.number(
        8.0,
        above=0,
        max=1e6,
        about="Largest ratio of a whole response, policy over behaviour; no gradient flows in it.",
        source="the published code",
    )
    kl_coef: float = fields.kl_in_reward(0.0, source="the published code has none")
    reduction: Reduction = fields.reduction(Reduction.sequence_mean)
    objective: ClassVar[Objective] = Objective.sequence_ratio
    own_needs: ClassVar[Needs] = Needs(group_size=2, ratio_gradients=True, scales_with_reward=True)

    def credit(self, reward_PG: Tensor, batch: Batch) -> Credit:
        """Reward less KL, less the mean of the same over the group with weights w_i^2 |g_i|^2, the
        squared norms of the gradients of w_i; as a softmax, since ratios overflow."""
        return_PG = self.less_kl(reward_PG, batch)
        share_PG = (2 * grouped(batch.log_ratio_gradient_B, batch)).softmax(dim=1)
        baseline_P1 = (share_PG * return_PG).sum(dim=1, keepdim=True)
        advantage_PG = above(return_PG, baseline_P1)
        return Credit(per_token(advantage_PG, batch), keep_B=keep_all(reward_PG))

    def loss(self, policy: PolicyOutput, batch: Batch) -> LossOutput:
        """Minus the log-likelihood of whole responses, weighted by capped ratio and credit."""
        ratio_B = ratio_of(log_ratio_of_responses(policy, batch).detach())
        factor_B = ratio_B.clamp(max=self.cap) * sequence_value(batch.credit_BT, batch)
        loss_B = -factor_B * sequence_sum(policy.logp_BT, batch)
        weight_B = sequence_weight(batch)
        share = ((ratio_B > self.cap) * weight_B).sum()
        output = LossOutput((loss_B * weight_B).sum(), {"vcpo/ratios_capped": share})
        return self.plus_kl(output, policy, batch)

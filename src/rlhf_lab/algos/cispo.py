"""CISPO: the ratio's weight is clipped, no token's gradient is (arXiv:2506.13585, eq. 4 and 5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from rlhf_lab.algos import fields
from rlhf_lab.algos.advantages import standardised
from rlhf_lab.algos.common import keep_all, per_token, ratio_to_proximal
from rlhf_lab.algos.kl import KLLocation, KLPenalty
from rlhf_lab.types import limits
from rlhf_lab.types.data import Batch, Credit, LossOutput, Needs, Objective, PolicyOutput, Reduction

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class CISPO(KLPenalty):
    """CISPO: log-likelihood weighted by credit and by a clipped token ratio without gradient."""

    name: str = limits.name("cispo")
    clip_low: float = limits.share(
        1.0,
        about="A token weighs at least 1 - clip_low; 1 is no lower bound.",
        source="arXiv:2506.13585, eq. 5",
    )
    clip_high: float = limits.number(
        4.0,
        min=0,
        max=1000,
        about="A token weighs at most 1 + clip_high.",
        source="5 in all: ScaleRL, arXiv:2510.13786",
    )
    epsilon: float = fields.epsilon()
    kl_coef: float = fields.kl_in_loss(0.0, source="the paper has none")
    reduction: Reduction = fields.reduction(Reduction.token_mean)
    own_location: ClassVar[KLLocation] = KLLocation.loss
    objective: ClassVar[Objective] = Objective.token_ratio
    own_needs: ClassVar[Needs] = Needs(group_size=2)

    def credit(self, reward_PG: Tensor, batch: Batch) -> Credit:
        """Reward less the group mean, over the group's standard deviation plus epsilon."""
        advantage_PG = standardised(self.less_kl(reward_PG, batch), self.epsilon)
        return Credit(per_token(advantage_PG, batch), keep_B=keep_all(reward_PG))

    def loss(self, policy: PolicyOutput, batch: Batch) -> LossOutput:
        """Log-probs weighted by the clipped ratio, through which no gradient flows, and credit."""
        ratio_BT = ratio_to_proximal(policy, batch).detach()
        factor_BT = ratio_BT.clamp(1 - self.clip_low, 1 + self.clip_high)
        loss = -(factor_BT * batch.credit_BT * policy.logp_BT * batch.weight_BT).sum()
        share = ((ratio_BT != factor_BT) * batch.weight_BT).sum()
        output = LossOutput(loss, {"cispo/weights_clipped": share})
        return self.plus_kl(output, policy, batch)

"""GSPO: clipped geometric-mean ratio of the whole response (arXiv:2507.18071, eq. 5 to 7)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from rlhf_lab.algos import fields
from rlhf_lab.algos.advantages import standardised
from rlhf_lab.algos.common import keep_all, per_token, response_surrogate, sequence_value
from rlhf_lab.algos.kl import KLLocation, KLPenalty
from rlhf_lab.algos.off_policy import ratio_of
from rlhf_lab.types import limits
from rlhf_lab.types.data import Batch, Credit, LossOutput, Needs, Objective, PolicyOutput, Reduction

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class GSPO(KLPenalty):
    """GSPO: PPO's clip on the geometric mean of a response's token ratios."""

    name: str = limits.name("gspo")
    clip_low: float = fields.clip_low(3e-4, of="mean token")
    clip_high: float = fields.clip_high(4e-4, of="mean token")
    epsilon: float = fields.epsilon()
    kl_coef: float = fields.kl_in_loss(0.0, source="the paper has none")
    reduction: Reduction = fields.reduction(Reduction.sequence_mean)
    own_location: ClassVar[KLLocation] = KLLocation.loss
    objective: ClassVar[Objective] = Objective.sequence_ratio
    own_needs: ClassVar[Needs] = Needs(group_size=2)

    def credit(self, reward_PG: Tensor, batch: Batch) -> Credit:
        """Reward less the group mean, over the group's standard deviation plus epsilon."""
        advantage_PG = standardised(self.less_kl(reward_PG, batch), self.epsilon)
        return Credit(per_token(advantage_PG, batch), keep_B=keep_all(reward_PG))

    def loss(self, policy: PolicyOutput, batch: Batch) -> LossOutput:
        """Clipped surrogate; the ratio is exp(mean log-ratio of the response's tokens)."""
        ratio_B = ratio_of(sequence_value(policy.logp_BT - batch.proximal_logp_BT, batch))
        output = response_surrogate(ratio_B, batch, self.clip_low, self.clip_high)
        return self.plus_kl(output, policy, batch)

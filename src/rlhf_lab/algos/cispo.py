"""CISPO: the ratio's weight is clipped, no token's gradient is (arXiv:2506.13585, eq. 4 and 5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from rlhf_lab.algos.advantages import standardised
from rlhf_lab.algos.common import keep_all, per_token, ratio_to_proximal, require_in
from rlhf_lab.types import Batch, Credit, LossOutput, Needs, Objective, PolicyOutput, Reduction


@dataclass(frozen=True)
class CISPO:
    """clip_high: token ratios weigh at most 1 + it (5 in all, as ScaleRL found, arXiv:2510.13786).
    clip_low: and at least 1 - it; 1 is no bound, the paper's."""

    name: str = "cispo"
    clip_low: float = 1.0
    clip_high: float = 4.0
    epsilon: float = 1e-4
    reduction: Reduction = Reduction.token_mean
    objective: ClassVar[Objective] = Objective.token_ratio
    needs: ClassVar[Needs] = Needs(group_size=2)

    def __post_init__(self) -> None:
        require_in("algo.clip_low", self.clip_low, 0.0, 1.0)
        require_in("algo.clip_high", self.clip_high, 0.0, 1000.0)
        require_in("algo.epsilon", self.epsilon, 1e-12, 1.0)

    def credit(self, reward_PG: Tensor, batch: Batch) -> Credit:
        """Reward less the group mean, over the group's standard deviation plus epsilon."""
        advantage_PG = standardised(reward_PG, self.epsilon)
        return Credit(per_token(advantage_PG, batch), keep_B=keep_all(reward_PG))

    def loss(self, policy: PolicyOutput, batch: Batch) -> LossOutput:
        """Log-probs weighted by the clipped ratio, through which no gradient flows, and credit."""
        ratio_BT = ratio_to_proximal(policy, batch).detach()
        factor_BT = ratio_BT.clamp(1 - self.clip_low, 1 + self.clip_high)
        loss = -(factor_BT * batch.credit_BT * policy.logp_BT * batch.weight_BT).sum()
        share = ((ratio_BT != factor_BT) * batch.weight_BT).sum()
        return LossOutput(loss, {"cispo/weights_clipped": share})

"""AsymRE: off-policy REINFORCE with a baseline below the mean reward (arXiv:2506.20520)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from rlhf_lab.algos import fields
from rlhf_lab.algos.advantages import centred
from rlhf_lab.algos.common import credited_likelihood, keep_all, per_token
from rlhf_lab.algos.kl import KLPenalty
from rlhf_lab.types import limits
from rlhf_lab.types.data import Batch, Credit, LossOutput, Needs, Objective, PolicyOutput, Reduction

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class AsymRE(KLPenalty):
    """The baseline is the group mean plus a shift. There is no importance weight: below 0, the
    shift keeps the policy near the good samples of an older one; from 0 on, it can be pushed off
    all of them."""

    name: str = limits.name("asymre")
    shift: float = limits.number(
        -0.1,
        least=-limits.LARGEST_SCORE,
        most=limits.LARGEST_SCORE,
        about=(
            "Added to the group mean to make the baseline, in units of the reward. The older the "
            "samples, the farther below 0 it should be."
        ),
        source="arXiv:2506.20520, which has no number for other rewards than its own",
    )
    kl_coef: float = fields.kl_in_reward(0.0)
    reduction: Reduction = fields.reduction(Reduction.sequence_mean)
    objective: ClassVar[Objective] = Objective.likelihood
    own_needs: ClassVar[Needs] = Needs(group_size=2, scales_with_reward=True)

    def credit(self, reward_PG: Tensor, batch: Batch) -> Credit:
        """Reward less KL, less the group mean of the same, less the shift."""
        advantage_PG = centred(self.less_kl(reward_PG, batch)) - self.shift
        return Credit(per_token(advantage_PG, batch), keep_B=keep_all(reward_PG))

    def loss(self, policy: PolicyOutput, batch: Batch) -> LossOutput:
        """Minus the log-likelihood of whole responses, weighted by credit."""
        return self.plus_kl(credited_likelihood(policy, batch), policy, batch)

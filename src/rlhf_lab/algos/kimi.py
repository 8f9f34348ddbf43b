"""Kimi k1.5: online mirror descent by regression on rewards (arXiv:2501.12599, eq. 3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from rlhf_lab.algos import fields
from rlhf_lab.algos.advantages import centred
from rlhf_lab.algos.common import (
    keep_all,
    log_ratio_of_responses,
    per_token,
    sequence_sum,
    sequence_value,
    sequence_weight,
)
from rlhf_lab.algos.options import AlgorithmOptions
from rlhf_lab.types import limits
from rlhf_lab.types.data import Batch, Credit, LossOutput, Needs, Objective, PolicyOutput, Reduction

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Kimi(AlgorithmOptions):
    """Mirror descent towards each round's own behaviour policy: nothing keeps the policy near SFT
    over a whole run."""

    name: str = limits.name("kimi")
    tau: float = limits.number(
        0.1,
        least=0,
        most=1000,
        about="Strength of the pull to the policy that wrote the samples, in reward per nat.",
        source="arXiv:2501.12599, eq. 3",
    )
    reduction: Reduction = fields.reduction(Reduction.sequence_mean)
    objective: ClassVar[Objective] = Objective.comparison
    needs: ClassVar[Needs] = Needs(group_size=2, scales_with_reward=True)

    def credit(self, reward_PG: Tensor, batch: Batch) -> Credit:
        """Reward less the group mean, which stands for tau log Z."""
        return Credit(per_token(centred(reward_PG), batch), keep_B=keep_all(reward_PG))

    def loss(self, policy: PolicyOutput, batch: Batch) -> LossOutput:
        """Minus credited log-likelihood, plus tau / 2 times the squared log-ratio of responses."""
        credit_B = sequence_value(batch.credit_BT, batch)
        away_B = log_ratio_of_responses(policy, batch)
        loss_B = -credit_B * sequence_sum(policy.logp_BT, batch) + self.tau / 2 * away_B.square()
        return LossOutput((loss_B * sequence_weight(batch)).sum())

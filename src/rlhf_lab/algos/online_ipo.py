"""Online IPO: the preferred sample's margin is drawn to a fixed one (arXiv:2310.12036, eq. 17)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from rlhf_lab.algos import fields
from rlhf_lab.algos.options import AlgorithmOptions
from rlhf_lab.algos.pairs import (
    Pairs,
    compared,
    ipo,
    pair_choice,
    pair_credit,
    pair_needs,
    pair_output,
)
from rlhf_lab.types import limits
from rlhf_lab.types.data import Batch, Credit, LossOutput, Needs, Objective, PolicyOutput, Reduction

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class OnlineIPO(AlgorithmOptions):
    """IPO on pairs of the policy's own samples, ordered by the reward."""

    name: str = limits.name("online_ipo")
    beta: float = fields.beta("The loss draws the log-ratios of a pair 1 / (2 beta) nats apart.")
    pairs: Pairs = pair_choice()
    reduction: Reduction = fields.reduction(Reduction.sequence_mean)
    objective: ClassVar[Objective] = Objective.comparison

    @property
    def needs(self) -> Needs:
        return pair_needs(self.pairs)

    def credit(self, reward_PG: Tensor, batch: Batch) -> Credit:
        """Preferences by reward; groups whose rewards are all equal are dropped."""
        return pair_credit(reward_PG, batch, self.pairs)

    def loss(self, policy: PolicyOutput, batch: Batch) -> LossOutput:
        """Squared distance of the difference of log-ratios from 1 / (2 beta)."""
        gap_PGG, weight_PGG = compared(policy, batch)
        return pair_output(ipo(gap_PGG, self.beta), self.beta * gap_PGG, weight_PGG)

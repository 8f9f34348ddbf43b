"""Online SLiC: a hinge on the difference of log-ratios (arXiv:2305.10425; arXiv:2402.04792)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from rlhf_lab.algos import fields
from rlhf_lab.algos.options import AlgorithmOptions
from rlhf_lab.algos.pairs import Pairs, compared, pair_choice, pair_credit, pair_needs, pair_output
from rlhf_lab.types import limits
from rlhf_lab.types.data import Batch, Credit, LossOutput, Needs, Objective, PolicyOutput, Reduction

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class OnlineSLiC(AlgorithmOptions):
    """SLiC's hinge on pairs of the policy's own samples, ordered by the reward."""

    name: str = limits.name("online_slic")
    beta: float = fields.beta(
        "The hinge is 0 once the log-ratios of a pair are 1 / beta nats apart."
    )
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
        """max(0, 1 - beta * gap): pairs that are 1 / beta nats apart have no gradient."""
        gap_PGG, weight_PGG = compared(policy, batch)
        margin_PGG = self.beta * gap_PGG
        return pair_output((1 - margin_PGG).relu(), margin_PGG, weight_PGG)

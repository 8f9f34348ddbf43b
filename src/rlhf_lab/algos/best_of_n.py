"""Best-of-K SFT (RAFT): likelihood of the group's best sample (arXiv:2410.18252, section 3.3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from rlhf_lab.algos import fields
from rlhf_lab.algos.common import credited_likelihood, kl_penalty
from rlhf_lab.algos.options import AlgorithmOptions
from rlhf_lab.algos.pairs import best_credit
from rlhf_lab.types import limits
from rlhf_lab.types.data import Batch, Credit, LossOutput, Needs, Objective, PolicyOutput, Reduction

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class BestOfN(AlgorithmOptions):
    """Likelihood of each group's best sample; run.group_size=2 is the paper's Best-of-2."""

    name: str = limits.name("best_of_n")
    kl_coef: float = fields.kl_in_loss(0.0, source="the paper has none")
    reduction: Reduction = fields.reduction(Reduction.sequence_mean)
    objective: ClassVar[Objective] = Objective.comparison

    @property
    def needs(self) -> Needs:
        return Needs(group_size=2, trained_rows=1, reference=bool(self.kl_coef))

    def credit(self, reward_PG: Tensor, batch: Batch) -> Credit:
        """1 on the best sample; nothing else is trained on. Groups of equal rewards are dropped."""
        return best_credit(reward_PG, batch)

    def loss(self, policy: PolicyOutput, batch: Batch) -> LossOutput:
        """Minus the log-likelihood of whole responses, plus the KL penalty."""
        output = credited_likelihood(policy, batch)
        if not self.kl_coef:
            return output
        return LossOutput(output.loss + kl_penalty(policy, batch, self.kl_coef))

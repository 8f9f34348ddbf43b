"""CODPO: online DPO whose preferred sample violates nothing (arXiv:2409.20370, eq. 14)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from rlhf_lab.algos import fields
from rlhf_lab.algos.advantages import best_and_worst
from rlhf_lab.algos.common import grouped, sequence_value, sequence_weight
from rlhf_lab.algos.options import AlgorithmOptions
from rlhf_lab.algos.pairs import compared, marked, pair_output
from rlhf_lab.types import limits
from rlhf_lab.types.data import Batch, Credit, LossOutput, Needs, Objective, PolicyOutput, Reduction

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class CODPO(AlgorithmOptions):
    """DPO of the best sample against the worst, which is one that violates a constraint if any
    does, plus the likelihood of the best."""

    name: str = limits.name("codpo")
    beta: float = fields.beta(
        "Strength of the pull to the reference, in 1 / nats.", "arXiv:2409.20370, eq. 14"
    )
    likelihood: float = limits.number(
        5.0,
        least=0,
        most=1e6,
        about="Weight of the mean log-likelihood of the preferred sample's tokens.",
        source="lambda of arXiv:2409.20370, eq. 14; 5: trl, cgpo_config",
    )
    reduction: Reduction = fields.reduction(Reduction.sequence_mean)
    objective: ClassVar[Objective] = Objective.comparison
    needs: ClassVar[Needs] = Needs(group_size=2, reference=True, trained_rows=2, constraints=True)

    def credit(self, reward_PG: Tensor, batch: Batch) -> Credit:
        """+1 for the best sample and -1 for the worst. Groups in which all samples violate a
        constraint, or all rewards are equal, are dropped."""
        best_PG, worst_PG = best_and_worst(reward_PG)
        is_usable_P1 = reward_PG.amax(dim=1, keepdim=True) > 0
        return marked((best_PG - worst_PG) * is_usable_P1, batch)

    def loss(self, policy: PolicyOutput, batch: Batch) -> LossOutput:
        """-log sigmoid of beta times the difference of log-ratios, less the likelihood term."""
        from torch.nn.functional import logsigmoid

        gap_PGG, weight_PGG = compared(policy, batch)
        output = pair_output(-logsigmoid(self.beta * gap_PGG), self.beta * gap_PGG, weight_PGG)
        is_best_PG = grouped(sequence_value(batch.credit_BT, batch), batch) > 0
        logp_PG = grouped(sequence_value(policy.logp_BT, batch), batch) * is_best_PG
        weight_P1 = grouped(sequence_weight(batch), batch).sum(dim=1, keepdim=True)
        pull = self.likelihood * (logp_PG * weight_P1).sum()
        return LossOutput(output.loss - pull, output.metrics)

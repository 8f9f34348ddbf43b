"""Online SLiC: a hinge on the difference of log-ratios (arXiv:2305.10425; arXiv:2402.04792)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from rlhf_lab.algos.pairs import Pairs, compared, pair_credit, pair_output
from rlhf_lab.types import limits
from rlhf_lab.types.data import Batch, Credit, LossOutput, Needs, Objective, PolicyOutput, Reduction


@dataclass(frozen=True)
class OnlineSLiC(limits.Limited, key="algo"):
    """beta: enough are log-ratios 1 / beta nats apart. pairs: as in online_dpo."""

    name: str = "online_slic"
    beta: float = limits.number(0.1, least=1e-6, most=100)
    pairs: Pairs = Pairs.best_worst
    reduction: Reduction = Reduction.sequence_mean
    objective: ClassVar[Objective] = Objective.comparison
    needs: ClassVar[Needs] = Needs(group_size=2)

    def credit(self, reward_PG: Tensor, batch: Batch) -> Credit:
        """Who is better than whom. A group of equals is dropped."""
        return pair_credit(reward_PG, batch, self.pairs)

    def loss(self, policy: PolicyOutput, batch: Batch) -> LossOutput:
        """What is missing from a margin of one; a pair that has it pulls no more."""
        gap_PGG, weight_PGG = compared(policy, batch)
        margin_PGG = self.beta * gap_PGG
        return pair_output((1 - margin_PGG).relu(), margin_PGG, weight_PGG)

"""Online IPO: the preferred sample's margin is drawn to a fixed one (arXiv:2310.12036, eq. 17)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from rlhf_lab.algos.pairs import Pairs, compared, ipo, pair_credit, pair_output
from rlhf_lab.types import limits
from rlhf_lab.types.data import Batch, Credit, LossOutput, Needs, Objective, PolicyOutput, Reduction


@dataclass(frozen=True)
class OnlineIPO(limits.Limited, key="algo"):
    """beta: log-ratios are drawn 1 / (2 beta) nats apart. pairs: as in online_dpo."""

    name: str = "online_ipo"
    beta: float = limits.number(0.1, least=1e-6, most=100)
    pairs: Pairs = Pairs.best_worst
    reduction: Reduction = Reduction.sequence_mean
    objective: ClassVar[Objective] = Objective.comparison
    needs: ClassVar[Needs] = Needs(group_size=2)

    def credit(self, reward_PG: Tensor, batch: Batch) -> Credit:
        """Who is better than whom. A group of equals is dropped."""
        return pair_credit(reward_PG, batch, self.pairs)

    def loss(self, policy: PolicyOutput, batch: Batch) -> LossOutput:
        """Squared distance of the difference of log-ratios from 1 / (2 beta)."""
        gap_PGG, weight_PGG = compared(policy, batch)
        return pair_output(ipo(gap_PGG, self.beta), self.beta * gap_PGG, weight_PGG)

"""Online DPO: a prompt's samples against each other (arXiv:2402.04792; arXiv:2305.18290, eq. 7)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor
from torch.nn.functional import logsigmoid

from rlhf_lab.algos.pairs import Pairs, compared, pair_credit, pair_output
from rlhf_lab.types import limits
from rlhf_lab.types.data import Batch, Credit, LossOutput, Needs, Objective, PolicyOutput, Reduction


@dataclass(frozen=True)
class OnlineDPO(limits.Limited, key="algo"):
    """beta: strength of the pull to the reference, 1 / nats.

    smoothing: share of preferences taken to be wrong (cDPO). pairs: best against worst of K, or all
    pairs of unequal reward. refresh_every: rounds after which the policy becomes the reference
    (iterative DPO with the hard update of TR-DPO, arXiv:2404.09656); 0 keeps the first one, as RLHF
    Workflow does (arXiv:2405.07863).
    """

    name: str = "online_dpo"
    beta: float = limits.number(0.1, least=1e-6, most=100)
    smoothing: float = limits.share(0.0, most=0.5)
    pairs: Pairs = Pairs.best_worst
    refresh_every: int = limits.count(0, least=0, most=10**6)
    reduction: Reduction = Reduction.sequence_mean
    objective: ClassVar[Objective] = Objective.comparison

    @property
    def needs(self) -> Needs:
        return Needs(group_size=2, reference_every=self.refresh_every)

    def credit(self, reward_PG: Tensor, batch: Batch) -> Credit:
        """Who is better than whom. A group of equals is dropped."""
        return pair_credit(reward_PG, batch, self.pairs)

    def loss(self, policy: PolicyOutput, batch: Batch) -> LossOutput:
        """-log sigmoid of beta times the difference of log-ratios, a mean over pairs and groups."""
        gap_PGG, weight_PGG = compared(policy, batch)
        margin_PGG = self.beta * gap_PGG
        right_PGG = (1 - self.smoothing) * logsigmoid(margin_PGG)
        loss_PGG = -right_PGG - self.smoothing * logsigmoid(-margin_PGG)
        return pair_output(loss_PGG, margin_PGG, weight_PGG)

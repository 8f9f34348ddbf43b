"""Online DPO: a prompt's samples against each other (arXiv:2402.04792; arXiv:2305.18290, eq. 7)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from rlhf_lab.algos import fields
from rlhf_lab.algos.options import AlgorithmOptions
from rlhf_lab.algos.pairs import Pairs, compared, pair_choice, pair_credit, pair_needs, pair_output
from rlhf_lab.types import limits
from rlhf_lab.types.data import Batch, Credit, LossOutput, Needs, Objective, PolicyOutput, Reduction

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class OnlineDPO(AlgorithmOptions):
    """DPO on pairs of the policy's own samples, ordered by the reward."""

    name: str = limits.name("online_dpo")
    beta: float = fields.beta(
        "Strength of the pull to the reference, in 1 / nats.", "arXiv:2305.18290, eq. 7"
    )
    smoothing: float = limits.share(
        0.0,
        most=0.5,
        about="Share of preferences assumed to be wrong (conservative DPO).",
    )
    pairs: Pairs = pair_choice()
    refresh_every: int = limits.count(
        0,
        least=0,
        most=10**6,
        about="Rounds after which the policy becomes the reference; 0 keeps the first reference.",
        source="arXiv:2404.09656 (hard update); 0: arXiv:2405.07863",
    )
    reduction: Reduction = fields.reduction(Reduction.sequence_mean)
    objective: ClassVar[Objective] = Objective.comparison

    @property
    def needs(self) -> Needs:
        return replace(pair_needs(self.pairs), reference_every=self.refresh_every)

    def credit(self, reward_PG: Tensor, batch: Batch) -> Credit:
        """Preferences by reward; groups whose rewards are all equal are dropped."""
        return pair_credit(reward_PG, batch, self.pairs)

    def loss(self, policy: PolicyOutput, batch: Batch) -> LossOutput:
        """-log sigmoid of beta times the difference of log-ratios, a mean over pairs and groups."""
        from torch.nn.functional import logsigmoid

        gap_PGG, weight_PGG = compared(policy, batch)
        margin_PGG = self.beta * gap_PGG
        right_PGG = (1 - self.smoothing) * logsigmoid(margin_PGG)
        loss_PGG = -right_PGG - self.smoothing * logsigmoid(-margin_PGG)
        return pair_output(loss_PGG, margin_PGG, weight_PGG)

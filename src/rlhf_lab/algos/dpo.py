"""Offline DPO, IPO or SFT on a fixed set of pairs (arXiv:2305.18290, eq. 7; arXiv:2310.12036)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar

from rlhf_lab.algos import fields
from rlhf_lab.algos.common import credited_likelihood
from rlhf_lab.algos.options import AlgorithmOptions
from rlhf_lab.algos.pairs import best_credit, compared, ipo, pair_credit, pair_output
from rlhf_lab.types import limits
from rlhf_lab.types.data import Batch, Credit, LossOutput, Needs, Objective, PolicyOutput, Reduction

if TYPE_CHECKING:
    from torch import Tensor


class PairLoss(StrEnum):
    """sigmoid is DPO, ipo draws pairs a fixed margin apart, sft learns the chosen side alone."""

    sigmoid = "sigmoid"
    ipo = "ipo"
    sft = "sft"


@dataclass(frozen=True)
class DPO(AlgorithmOptions):
    """Offline preference learning; algo=dpo also sets generator=pairs. pair_loss=sft and then
    sigmoid, from the first run's policy, are dSFT and dDPO (Zephyr, arXiv:2310.16944)."""

    name: str = limits.name("dpo")
    beta: float = fields.beta(
        "Strength of the pull to the reference, in 1 / nats.", "arXiv:2305.18290, eq. 7"
    )
    pair_loss: PairLoss = limits.option(
        PairLoss.sigmoid,
        about=(
            "Loss of a pair: sigmoid is DPO, ipo draws the log-ratios a fixed margin apart, sft "
            "learns the chosen response alone."
        ),
        source="ipo: arXiv:2310.12036, eq. 17",
    )
    reduction: Reduction = fields.reduction(Reduction.sequence_mean)
    objective: ClassVar[Objective] = Objective.comparison

    @property
    def needs(self) -> Needs:
        is_sft = self.pair_loss is PairLoss.sft
        return Needs(group_size=2, trained_rows=1 if is_sft else 2, reference=not is_sft)

    def credit(self, reward_PG: Tensor, batch: Batch) -> Credit:
        """+1 on the chosen, -1 on the rejected; sft keeps the chosen alone."""
        if self.pair_loss is PairLoss.sft:
            return best_credit(reward_PG, batch)
        return pair_credit(reward_PG, batch)

    def loss(self, policy: PolicyOutput, batch: Batch) -> LossOutput:
        """The loss of each pair, a mean over pairs."""
        from torch.nn.functional import logsigmoid

        if self.pair_loss is PairLoss.sft:
            return credited_likelihood(policy, batch)
        gap_PGG, weight_PGG = compared(policy, batch)
        margin_PGG = self.beta * gap_PGG
        is_ipo = self.pair_loss is PairLoss.ipo
        loss_PGG = ipo(gap_PGG, self.beta) if is_ipo else -logsigmoid(margin_PGG)
        return pair_output(loss_PGG, margin_PGG, weight_PGG)

"""CRRAFT: likelihood of the best sample that violates nothing, by its reward (arXiv:2409.20370)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from rlhf_lab.algos import fields
from rlhf_lab.algos.common import credited_likelihood
from rlhf_lab.algos.constrained import kl_max, kl_of
from rlhf_lab.algos.options import AlgorithmOptions
from rlhf_lab.algos.pairs import marked
from rlhf_lab.types import limits
from rlhf_lab.types.data import Batch, Credit, LossOutput, Needs, Objective, PolicyOutput, Reduction

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class CRRAFT(AlgorithmOptions):
    """The best of each group's samples that violate nothing and are within kl_max."""

    name: str = limits.name("crraft")
    kl_max: float = kl_max()
    reduction: Reduction = fields.reduction(Reduction.sequence_mean)
    objective: ClassVar[Objective] = Objective.comparison
    needs: ClassVar[Needs] = Needs(
        group_size=2, reference=True, trained_rows=1, scales_with_reward=True, constraints=True
    )

    def credit(self, reward_PG: Tensor, batch: Batch) -> Credit:
        """Its reward on the best sample; nothing else is trained on. Groups without one that
        violates nothing and is near enough are dropped."""
        import torch

        allowed_PG = reward_PG.clamp(min=0) * (kl_of(reward_PG, batch) <= self.kl_max)
        best_PG = torch.nn.functional.one_hot(allowed_PG.argmax(dim=1), reward_PG.shape[1])
        return marked(best_PG * allowed_PG, batch)

    def loss(self, policy: PolicyOutput, batch: Batch) -> LossOutput:
        """Minus the log-likelihood of whole responses times their reward."""
        return credited_likelihood(policy, batch)

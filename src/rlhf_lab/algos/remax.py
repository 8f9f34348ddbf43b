"""ReMax: the greedy response's reward is the baseline (arXiv:2310.10505, algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from rlhf_lab.algos import fields
from rlhf_lab.algos.common import credited_likelihood, per_token
from rlhf_lab.algos.kl import KLPenalty
from rlhf_lab.types import limits
from rlhf_lab.types.data import Batch, Credit, LossOutput, Needs, Objective, PolicyOutput, Reduction

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class ReMax(KLPenalty):
    """ReMax: the last sample of each group is greedy and the baseline of the others;
    run.group_size=2 is the paper's setting."""

    name: str = limits.name("remax")
    kl_coef: float = fields.kl_in_reward(0.05)
    reduction: Reduction = fields.reduction(Reduction.sequence_mean)
    objective: ClassVar[Objective] = Objective.likelihood
    own_needs: ClassVar[Needs] = Needs(group_size=2, greedy=True, scales_with_reward=True)

    def credit(self, reward_PG: Tensor, batch: Batch) -> Credit:
        """Reward less KL, less the reward of the greedy sample, which is not trained on."""
        import torch

        advantage_PG = self.less_kl(reward_PG, batch) - reward_PG[:, -1:]
        keep_PG = torch.ones_like(reward_PG, dtype=torch.bool)
        keep_PG[:, -1] = False
        return Credit(per_token(advantage_PG, batch), keep_B=keep_PG.flatten())

    def loss(self, policy: PolicyOutput, batch: Batch) -> LossOutput:
        """Minus the log-likelihood of whole responses, weighted by credit."""
        return self.plus_kl(credited_likelihood(policy, batch), policy, batch)

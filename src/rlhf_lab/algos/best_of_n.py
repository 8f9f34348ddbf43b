"""Best-of-K SFT: likelihood of the group's best sample (arXiv:2410.18252, section 3.3; RAFT)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from rlhf_lab.algos.common import best_and_worst, per_token, sequence_sum, sequence_weight
from rlhf_lab.types import Batch, Credit, LossOutput, PolicyOutput, Reduction


@dataclass(frozen=True)
class BestOfN:
    """No reference and no KL: the paper's Best-of-2 when run.group_size=2."""

    name: str = "best_of_n"
    reduction: Reduction = Reduction.sequence_mean
    min_group_size: ClassVar[int] = 2

    def credit(self, reward_PG: Tensor, batch: Batch) -> Credit:
        """1 on the best sample; nothing else is trained on. A group of equals is dropped."""
        best_PG, _ = best_and_worst(reward_PG)
        return Credit(per_token(best_PG, batch), keep_B=best_PG.flatten() != 0)

    def loss(self, policy: PolicyOutput, batch: Batch) -> LossOutput:
        """Minus the log-likelihood of whole responses."""
        logp_B = sequence_sum(policy.logp_BT, batch)
        return LossOutput(-(logp_B * sequence_weight(batch)).sum())

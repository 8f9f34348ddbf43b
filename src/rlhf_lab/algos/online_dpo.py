"""Online DPO: best against worst of K (arXiv:2402.04792; loss of arXiv:2305.18290, eq. 7)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor
from torch.nn.functional import logsigmoid

from rlhf_lab.algos.common import (
    best_and_worst,
    per_token,
    require_in,
    sequence_sum,
    sequence_value,
    sequence_weight,
)
from rlhf_lab.types import Batch, Credit, LossOutput, PolicyOutput, Reduction


@dataclass(frozen=True)
class OnlineDPO:
    """beta: strength of the pull to the reference, 1 / nats."""

    name: str = "online_dpo"
    beta: float = 0.1
    reduction: Reduction = Reduction.sequence_mean
    min_group_size: ClassVar[int] = 2

    def __post_init__(self) -> None:
        require_in("algo.beta", self.beta, 1e-6, 100.0)

    def credit(self, reward_PG: Tensor, batch: Batch) -> Credit:
        """+1 on the winner, -1 on the loser. A group of equals has neither and is dropped."""
        best_PG, worst_PG = best_and_worst(reward_PG)
        sign_PG = best_PG - worst_PG
        return Credit(per_token(sign_PG, batch), keep_B=sign_PG.flatten() != 0)

    def loss(self, policy: PolicyOutput, batch: Batch) -> LossOutput:
        """-log sigmoid of beta times the difference of log-ratios, a mean over pairs."""
        log_ratio_B = sequence_sum(policy.logp_BT - batch.reference_logp_BT, batch)
        signed_B = sequence_value(batch.credit_BT, batch) * log_ratio_B
        margin_P = self.beta * signed_B.view(-1, 2).sum(dim=1)
        weight_P = sequence_weight(batch).view(-1, 2).sum(dim=1)
        return LossOutput(
            -(logsigmoid(margin_P) * weight_P).sum(),
            {
                "dpo/margin": (margin_P * weight_P).sum(),
                "dpo/accuracy": ((margin_P > 0) * weight_P).sum(),
            },
        )

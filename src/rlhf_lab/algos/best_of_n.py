"""Best-of-K SFT (RAFT): likelihood of the group's best sample (arXiv:2410.18252, section 3.3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from rlhf_lab.algos.advantages import best_and_worst
from rlhf_lab.algos.common import credited_likelihood, k3, per_token, require_in
from rlhf_lab.types import Batch, Credit, LossOutput, Needs, Objective, PolicyOutput, Reduction


@dataclass(frozen=True)
class BestOfN:
    """The paper's Best-of-2 when run.group_size=2. kl_coef: weight of a KL penalty (k3 to the
    reference, per token); 0 is the paper's, which has none."""

    name: str = "best_of_n"
    kl_coef: float = 0.0
    reduction: Reduction = Reduction.sequence_mean
    objective: ClassVar[Objective] = Objective.comparison
    needs: ClassVar[Needs] = Needs(group_size=2)

    def __post_init__(self) -> None:
        require_in("algo.kl_coef", self.kl_coef, 0.0, 100.0)

    def credit(self, reward_PG: Tensor, batch: Batch) -> Credit:
        """1 on the best sample; nothing else is trained on. A group of equals is dropped."""
        best_PG, _ = best_and_worst(reward_PG)
        return Credit(per_token(best_PG, batch), keep_B=best_PG.flatten() != 0)

    def loss(self, policy: PolicyOutput, batch: Batch) -> LossOutput:
        """Minus the log-likelihood of whole responses, plus the KL penalty."""
        kl_BT = k3(policy.logp_BT, batch.reference_logp_BT)
        likelihood = credited_likelihood(policy, batch).loss
        return LossOutput(likelihood + self.kl_coef * (kl_BT * batch.weight_BT).sum())

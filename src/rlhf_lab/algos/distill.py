"""On-policy distillation by the reverse KL of sampled tokens (arXiv:2606.24143 and its code).

The teacher takes the reference's place: `batch.reference_logp_BT` are its log-probs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar

from rlhf_lab.algos import fields
from rlhf_lab.algos.common import keep_all, token_surrogate
from rlhf_lab.types import limits
from rlhf_lab.types.data import Batch, Credit, LossOutput, Needs, Objective, PolicyOutput, Reduction

if TYPE_CHECKING:
    from torch import Tensor


class Signal(StrEnum):
    """Whose log-probs the teacher's are compared with: those of the policy that wrote the token, or
    of the policy that is trained, as it is at each update."""

    behavior = "behavior"
    policy = "policy"


@dataclass(frozen=True)
class Distill(limits.Limited, key="algo"):
    """On-policy distillation: each sampled token is credited with log(teacher / policy), the
    negative reverse KL to the teacher, under PPO's clip. Rewards are logged and not used."""

    name: str = limits.name("distill")
    teacher: str = limits.option(
        "",
        about=(
            "Teacher: a hub name, with @REVISION if wanted, or a folder of save_pretrained, of the "
            "policy's vocabulary. It takes the place of the reference."
        ),
    )
    signal: Signal = limits.option(
        Signal.behavior,
        about=(
            "Whose log-probs are subtracted from the teacher's: of the policy that wrote the token "
            "(behavior), or of the policy at each update (policy), which stale samples need."
        ),
        source="policy: arXiv:2606.24143, recomputed reverse-KL signal",
    )
    clip: float = fields.clip(0.2)
    reduction: Reduction = fields.reduction(Reduction.token_mean)
    objective: ClassVar[Objective] = Objective.token_ratio

    @property
    def needs(self) -> Needs:
        return Needs(teacher=self.teacher)

    def credit(self, reward_PG: Tensor, batch: Batch) -> Credit:
        """log teacher - log behaviour of each token, without later ones; for signal=policy 1, which
        the loss multiplies by its own signal."""
        log_ratio_BT = (batch.reference_logp_BT - batch.behavior_logp_BT) * batch.mask_BT
        is_own = self.signal is Signal.behavior
        return Credit(log_ratio_BT if is_own else batch.mask_BT, keep_B=keep_all(reward_PG))

    def loss(self, policy: PolicyOutput, batch: Batch) -> LossOutput:
        """Clipped surrogate per token. No gradient flows through the signal."""
        if self.signal is Signal.policy:
            log_ratio_BT = batch.reference_logp_BT - policy.logp_BT.detach()
            batch = replace(batch, credit_BT=batch.credit_BT * log_ratio_BT)
        return token_surrogate(policy, batch, self.clip, self.clip)

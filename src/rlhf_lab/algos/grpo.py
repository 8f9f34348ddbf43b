"""GRPO, and two forms with other denominators of credit and loss."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from rlhf_lab.algos import fields
from rlhf_lab.algos.advantages import Deviation, centred, scaled
from rlhf_lab.algos.common import keep_all, per_token, token_surrogate
from rlhf_lab.algos.kl import KLLocation, KLPenalty
from rlhf_lab.types import limits
from rlhf_lab.types.data import Batch, Credit, LossOutput, Needs, Objective, PolicyOutput, Reduction

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class GRPO(KLPenalty):
    """GRPO: group-standardised reward, clipped token ratio, k3 KL (arXiv:2402.03300, eq. 3).

    The options of arXiv:2508.08221 are settings of it: deviation, clip_higher, reduction.

    Rewards standardised within each group, PPO's clip, and KL as a term of the loss."""

    name: str = limits.name("grpo")
    clip: float = fields.clip(0.2)
    clip_higher: float = limits.number(
        0.0,
        min=0,
        max=100,
        about=(
            "Added to clip on the upper side: the ratio earns nothing above 1 + clip + clip_higher."
        ),
        source="clip-higher of arXiv:2503.14476, eq. 8",
    )
    deviation: Deviation = limits.option(
        Deviation.group,
        about=(
            "Standard deviation that divides the reward less the group mean: of the group, of all "
            "rewards of the round (batch), or none (none)."
        ),
        source="arXiv:2508.08221",
    )
    kl_coef: float = fields.kl_in_loss(0.04, source="arXiv:2402.03300, eq. 4")
    epsilon: float = fields.epsilon()
    reduction: Reduction = fields.reduction(Reduction.sequence_mean)
    own_location: ClassVar[KLLocation] = KLLocation.loss
    objective: ClassVar[Objective] = Objective.token_ratio
    own_needs: ClassVar[Needs] = Needs(group_size=2)

    @property
    def needs(self) -> Needs:
        return replace(super().needs, scales_with_reward=self.deviation is Deviation.none)

    def credit(self, reward_PG: Tensor, batch: Batch) -> Credit:
        """Reward less the group mean, over the chosen standard deviation plus epsilon."""
        advantage_PG = scaled(self.less_kl(reward_PG, batch), self.deviation, self.epsilon)
        return Credit(per_token(advantage_PG, batch), keep_B=keep_all(reward_PG))

    def loss(self, policy: PolicyOutput, batch: Batch) -> LossOutput:
        """Clipped surrogate per token plus the KL penalty."""
        output = token_surrogate(policy, batch, self.clip, self.clip + self.clip_higher)
        return self.plus_kl(output, policy, batch)


@dataclass(frozen=True)
class DrGRPO(KLPenalty):
    """Dr. GRPO: GRPO without its two biases, length and deviation (arXiv:2503.20783, section 3.2).

    GRPO without the division by the group's deviation and by the response's length."""

    name: str = limits.name("dr_grpo")
    clip: float = fields.clip(0.2)
    kl_coef: float = fields.kl_in_loss(0.0, source="the paper has none")
    reduction: Reduction = fields.reduction(Reduction.per_limit)
    own_location: ClassVar[KLLocation] = KLLocation.loss
    objective: ClassVar[Objective] = Objective.token_ratio
    own_needs: ClassVar[Needs] = Needs(group_size=2, scales_with_reward=True)

    def credit(self, reward_PG: Tensor, batch: Batch) -> Credit:
        """Reward less the group mean."""
        return Credit(
            per_token(centred(self.less_kl(reward_PG, batch)), batch), keep_B=keep_all(reward_PG)
        )

    def loss(self, policy: PolicyOutput, batch: Batch) -> LossOutput:
        """Clipped surrogate per token, plus the KL penalty if there is one."""
        output = token_surrogate(policy, batch, self.clip, self.clip)
        return self.plus_kl(output, policy, batch)


@dataclass(frozen=True)
class LitePPO(KLPenalty):
    """Lite PPO: group mean, deviation of the whole batch, token mean (arXiv:2508.08221, section 5).

    PPO's clipped loss without a value model."""

    name: str = limits.name("lite_ppo")
    clip: float = fields.clip(0.2)
    epsilon: float = fields.epsilon("round")
    kl_coef: float = fields.kl_in_loss(0.0, source="the paper has none")
    reduction: Reduction = fields.reduction(Reduction.token_mean)
    own_location: ClassVar[KLLocation] = KLLocation.loss
    objective: ClassVar[Objective] = Objective.token_ratio
    own_needs: ClassVar[Needs] = Needs(group_size=2)

    def credit(self, reward_PG: Tensor, batch: Batch) -> Credit:
        """Reward less the group mean, over the standard deviation of all of the round's rewards."""
        advantage_PG = scaled(self.less_kl(reward_PG, batch), Deviation.batch, self.epsilon)
        return Credit(per_token(advantage_PG, batch), keep_B=keep_all(reward_PG))

    def loss(self, policy: PolicyOutput, batch: Batch) -> LossOutput:
        """Clipped surrogate per token."""
        output = token_surrogate(policy, batch, self.clip, self.clip)
        return self.plus_kl(output, policy, batch)

"""DAPO: clip-higher, dynamic sampling, token mean, overlong shaping (arXiv:2503.14476, eq. 8)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from rlhf_lab.algos import fields
from rlhf_lab.algos.advantages import is_informative, standardised
from rlhf_lab.algos.common import per_token, token_surrogate
from rlhf_lab.algos.kl import KLLocation, KLPenalty
from rlhf_lab.types import limits
from rlhf_lab.types.data import Batch, Credit, LossOutput, Needs, Objective, PolicyOutput, Reduction

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class DAPO(KLPenalty):
    """DAPO: a wider upper clip, groups of unequal rewards only, and a penalty on long responses."""

    name: str = limits.name("dapo")
    clip_low: float = fields.clip_low(0.2)
    clip_high: float = fields.clip_high(0.28)
    epsilon: float = fields.epsilon()
    overlong_share: float = limits.share(
        0.2,
        about=(
            "Last share of the response limit, over which the penalty on length rises from 0 to "
            "overlong_penalty."
        ),
        source="arXiv:2503.14476, eq. 13",
    )
    overlong_penalty: float = limits.number(
        1.0,
        min=0,
        max=100,
        about="Reward subtracted from a response that reaches the response limit.",
        source="arXiv:2503.14476, eq. 13",
    )
    oversample: float = limits.number(
        1.5,
        min=1,
        max=100,
        about=(
            "Groups generated for each group trained on: those with unequal rewards are taken "
            "first, in order, and equal ones are left out."
        ),
        source="arXiv:2503.14476, eq. 11",
    )
    kl_coef: float = fields.kl_in_loss(0.0, source="the paper has none")
    reduction: Reduction = fields.reduction(Reduction.token_mean)
    own_location: ClassVar[KLLocation] = KLLocation.loss
    objective: ClassVar[Objective] = Objective.token_ratio

    @property
    def needs(self) -> Needs:
        return Needs(
            group_size=2,
            oversample=self.oversample,
            reference=bool(self.kl_coef),
            length_penalty=bool(self.overlong_penalty),
        )

    def credit(self, reward_PG: Tensor, batch: Batch) -> Credit:
        """Standardised reward with a length penalty. Groups of equal rewards are dropped."""
        keep_PG = is_informative(reward_PG).unsqueeze(1).expand_as(reward_PG)
        shaped_PG = self.less_kl(reward_PG, batch)
        shaped_PG = shaped_PG - self.overlong_penalty * self._overlong(batch).view_as(reward_PG)
        advantage_PG = standardised(shaped_PG, self.epsilon)
        return Credit(per_token(advantage_PG, batch), keep_B=keep_PG.flatten())

    def _overlong(self, batch: Batch) -> Tensor:
        """0 up to where the last share of the limit begins, 1 at the limit, linear between, B."""
        share_B = self.overlong_share * batch.max_response_B
        over_B = batch.mask_BT.sum(dim=1) - (batch.max_response_B - share_B)
        return (over_B / share_B.clamp(min=1e-9)).clamp(0, 1)

    def loss(self, policy: PolicyOutput, batch: Batch) -> LossOutput:
        """Clipped surrogate per token, with a wider clip above than below."""
        output = token_surrogate(policy, batch, self.clip_low, self.clip_high)
        return self.plus_kl(output, policy, batch)

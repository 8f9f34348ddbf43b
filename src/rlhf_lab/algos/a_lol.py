"""A-LoL: likelihood of samples better than expected, with a clipped ratio (arXiv:2305.14718)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from rlhf_lab.algos import fields
from rlhf_lab.algos.advantages import centred
from rlhf_lab.algos.common import (
    log_ratio_of_responses,
    per_token,
    ratio_to_proximal,
    sequence_sum,
    sequence_weight,
)
from rlhf_lab.types import limits
from rlhf_lab.types.data import Batch, Credit, LossOutput, Needs, Objective, PolicyOutput, Reduction

if TYPE_CHECKING:
    from torch import Tensor


class RatioOf(StrEnum):
    """What the importance weight is of: whole responses (A-LoL), single tokens (A-LoL sequence), or
    nothing (A-LoL reference free)."""

    sequence = "sequence"
    token = "token"
    none = "none"


@dataclass(frozen=True)
class ALoL(limits.Limited, key="algo"):
    """Likelihood of the samples that are better than their group's mean, which stands for the
    paper's value of the reference policy."""

    name: str = limits.name("a_lol")
    clip: float = limits.share(0.9, about="Importance weights are cut to 1 - clip to 1 + clip.")
    ratio_of: RatioOf = limits.option(
        RatioOf.sequence,
        about=(
            "What the importance weight is the ratio of: whole responses (A-LoL), single tokens "
            "(A-LoL sequence) or nothing (A-LoL reference free)."
        ),
    )
    reduction: Reduction = fields.reduction(Reduction.sequence_mean)

    @property
    def objective(self) -> Objective:
        kinds = {RatioOf.sequence: Objective.sequence_ratio, RatioOf.token: Objective.token_ratio}
        return kinds.get(self.ratio_of, Objective.likelihood)

    @property
    def needs(self) -> Needs:
        return Needs(group_size=2)

    def credit(self, reward_PG: Tensor, batch: Batch) -> Credit:
        """Reward less the group mean; only rows above it are kept."""
        advantage_PG = centred(reward_PG)
        return Credit(per_token(advantage_PG, batch), keep_B=advantage_PG.flatten() > 0)

    def loss(self, policy: PolicyOutput, batch: Batch) -> LossOutput:
        """Log-likelihood weighted by credit and the clipped ratio, which carries no gradient."""
        ratio_BT = ratio_to_proximal(policy, batch)
        if self.ratio_of is RatioOf.sequence:
            ratio_BT = log_ratio_of_responses(policy, batch).exp().unsqueeze(1).expand_as(ratio_BT)
        factor_BT = ratio_BT.detach().clamp(1 - self.clip, 1 + self.clip)
        if self.ratio_of is RatioOf.none:
            factor_BT = batch.mask_BT
        credited_B = sequence_sum(factor_BT * batch.credit_BT * policy.logp_BT, batch)
        return LossOutput(-(credited_B * sequence_weight(batch)).sum())

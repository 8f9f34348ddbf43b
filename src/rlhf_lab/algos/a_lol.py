"""A-LoL: likelihood of samples better than expected, with a clipped ratio (arXiv:2305.14718)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from rlhf_lab.algos import fields
from rlhf_lab.algos.advantages import centred
from rlhf_lab.algos.common import (
    k1,
    keep_all,
    log_ratio_of_responses,
    per_token,
    ratio_to_proximal,
    sequence_sum,
    sequence_weight,
    value_error,
)
from rlhf_lab.types import limits
from rlhf_lab.types.data import (
    Batch,
    Credit,
    LossOutput,
    Needs,
    Objective,
    PolicyOutput,
    Reduction,
    ValueModel,
)

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
    """Likelihood of the samples that are better than expected: than their group's mean, or than a
    value model says of the prompt."""

    name: str = limits.name("a_lol")
    clip: float = limits.share(0.9, about="Importance weights are cut to 1 - clip to 1 + clip.")
    ratio_of: RatioOf = limits.option(
        RatioOf.sequence,
        about=(
            "What the importance weight is the ratio of: whole responses (A-LoL), single tokens "
            "(A-LoL sequence) or nothing (A-LoL reference free)."
        ),
    )
    value_baseline: bool = limits.option(
        False,
        about="Whether a value model of the prompt is the baseline, not the mean of the group.",
        source="arXiv:2305.14718, section 3.1",
    )
    priority: bool = limits.option(
        False,
        about=(
            "Whether a sample also weighs its advantage over the mean positive one: what sampling "
            "in proportion to advantages does in expectation."
        ),
        source="arXiv:2305.14718, section 3.3",
    )
    reference_kl: float = limits.number(
        0.0,
        least=0,
        most=100,
        about=(
            "Weight in the loss of log(policy / reference) of whole responses; A-LoL KL has it "
            "with ratio_of=none."
        ),
        source="arXiv:2305.14718, section 3.3",
    )
    reduction: Reduction = fields.reduction(Reduction.sequence_mean)

    @property
    def objective(self) -> Objective:
        kinds = {RatioOf.sequence: Objective.sequence_ratio, RatioOf.token: Objective.token_ratio}
        return kinds.get(self.ratio_of, Objective.likelihood)

    @property
    def needs(self) -> Needs:
        return Needs(values=ValueModel.own) if self.value_baseline else Needs(group_size=2)

    def credit(self, reward_PG: Tensor, batch: Batch) -> Credit:
        """Reward less the baseline; only rows above it have credit. With a value model all rows are
        kept, since the value learns from those below it too."""
        if not self.value_baseline:
            advantage_PG = centred(reward_PG)
            keep_B = advantage_PG.flatten() > 0
            return Credit(per_token(self._weighted(advantage_PG), batch), keep_B=keep_B)
        value_PG = batch.value_BT[:, 0].view_as(reward_PG)
        advantage_PG = self._weighted((reward_PG - value_PG).clamp(min=0))
        target_BT = per_token(reward_PG, batch) * self._first(batch)
        return Credit(per_token(advantage_PG, batch), keep_all(reward_PG), target_BT)

    def _weighted(self, advantage_PG: Tensor) -> Tensor:
        positive = advantage_PG[advantage_PG > 0]
        if not self.priority or not len(positive):
            return advantage_PG
        return advantage_PG * (advantage_PG / positive.mean()).clamp(min=0)

    def _first(self, batch: Batch) -> Tensor:
        import torch

        first_BT = torch.zeros_like(batch.mask_BT)
        first_BT[:, 0] = batch.mask_BT[:, 0]
        return first_BT

    def loss(self, policy: PolicyOutput, batch: Batch) -> LossOutput:
        """Log-likelihood weighted by credit and the clipped ratio, which carries no gradient."""
        ratio_BT = ratio_to_proximal(policy, batch)
        if self.ratio_of is RatioOf.sequence:
            ratio_BT = log_ratio_of_responses(policy, batch).exp().unsqueeze(1).expand_as(ratio_BT)
        factor_BT = ratio_BT.detach().clamp(1 - self.clip, 1 + self.clip)
        if self.ratio_of is RatioOf.none:
            factor_BT = batch.mask_BT
        credited_B = sequence_sum(factor_BT * batch.credit_BT * policy.logp_BT, batch)
        if self.reference_kl:
            away_BT = k1(policy.logp_BT, batch.reference_logp_BT)
            credited_B = credited_B - self.reference_kl * sequence_sum(away_BT, batch)
        loss = -(credited_B * sequence_weight(batch)).sum()
        if not self.value_baseline:
            return LossOutput(loss)
        error_B = sequence_sum(value_error(policy, batch, 0.0) * self._first(batch), batch)
        error = (error_B * sequence_weight(batch)).sum()
        return LossOutput(loss + error, {"ppo/value_error": error})

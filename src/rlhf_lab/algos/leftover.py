"""Base class of A-LoL: options, credit and the loss of the policy (arXiv:2305.14718)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlhf_lab.algos import fields
from rlhf_lab.algos.advantages import centred, prioritised
from rlhf_lab.algos.common import (
    first_tokens,
    k1,
    keep_all,
    log_ratio_of_responses,
    per_token,
    prompt_value_error,
    ratio_to_proximal,
    sequence_sum,
    sequence_weight,
)
from rlhf_lab.algos.off_policy import ratio_of
from rlhf_lab.algos.options import AlgorithmOptions
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


@dataclass(frozen=True)
class Leftover(AlgorithmOptions):
    """Likelihood of samples better than their group's mean or than a value model's number."""

    name: str = limits.name("a_lol")
    clip: float = limits.share(0.9, about="Importance weights are cut to 1 - clip to 1 + clip.")
    ratio_of: fields.RatioOf = limits.option(
        fields.RatioOf.sequence,
        about=(
            "What the importance weight is the ratio of: whole responses (A-LoL), single tokens "
            "(A-LoL sequence) or nothing (A-LoL reference free)."
        ),
    )
    value_baseline: bool = fields.value_baseline()
    priority: bool = fields.priority()
    reference_kl: float = fields.reference_kl()
    reduction: Reduction = fields.reduction(Reduction.sequence_mean)

    @property
    def objective(self) -> Objective:
        if self.ratio_of is fields.RatioOf.none:
            return Objective.likelihood
        is_token = self.ratio_of is fields.RatioOf.token
        return Objective.token_ratio if is_token else Objective.sequence_ratio

    @property
    def needs(self) -> Needs:
        return Needs(
            group_size=1 if self.value_baseline else 2,
            values=ValueModel.own if self.value_baseline else ValueModel.none,
            reference=bool(self.reference_kl),
            scales_with_reward=True,
        )

    def credit(self, reward_PG: Tensor, batch: Batch) -> Credit:
        """Reward less the baseline; only rows above it have credit. With a value model all rows are
        kept, since the value learns from those below it too."""
        if not self.value_baseline:
            advantage_PG = centred(reward_PG)
            weighed_PG = prioritised(advantage_PG, self.priority)
            return Credit(per_token(weighed_PG, batch), advantage_PG.flatten() > 0)
        value_PG = batch.value_BT[:, 0].view_as(reward_PG)
        advantage_PG = prioritised((reward_PG - value_PG).clamp(min=0), self.priority)
        target_BT = per_token(reward_PG, batch) * first_tokens(batch)
        return Credit(per_token(advantage_PG, batch), keep_all(reward_PG), target_BT)

    def loss(self, policy: PolicyOutput, batch: Batch) -> LossOutput:
        """The policy's loss, plus the error of the values where there are any."""
        loss = self.policy_loss(policy, batch)
        if not self.value_baseline:
            return LossOutput(loss)
        error = prompt_value_error(policy, batch)
        return LossOutput(loss + error, {"ppo/value_error": error})

    def policy_loss(self, policy: PolicyOutput, batch: Batch) -> Tensor:
        """Log-likelihood weighted by credit and the clipped ratio, which carries no gradient."""
        ratio_BT = ratio_to_proximal(policy, batch)
        if self.ratio_of is fields.RatioOf.sequence:
            ratio_B = ratio_of(log_ratio_of_responses(policy, batch))
            ratio_BT = ratio_B.unsqueeze(1).expand_as(ratio_BT)
        factor_BT = ratio_BT.detach().clamp(1 - self.clip, 1 + self.clip)
        factor_BT = batch.mask_BT if self.ratio_of is fields.RatioOf.none else factor_BT
        credited_B = sequence_sum(factor_BT * batch.credit_BT * policy.logp_BT, batch)
        if self.reference_kl:
            away_BT = k1(policy.logp_BT, batch.reference_logp_BT)
            credited_B = credited_B - self.reference_kl * sequence_sum(away_BT, batch)
        return -(credited_B * sequence_weight(batch)).sum()

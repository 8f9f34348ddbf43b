"""A-LoL: likelihood of samples better than expected."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
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
from rlhf_lab.types.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor


class RatioOf(StrEnum):
    """What the importance weight is of: whole responses (A-LoL), single tokens (A-LoL sequence), or
    nothing (A-LoL reference free)."""

    sequence = "sequence"
    token = "token"
    none = "none"


@dataclass(frozen=True)
class Leftover(AlgorithmOptions):
    """Likelihood of samples better than their group's mean or than a value model's number."""

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
        about=("Whether a value model of the prompt is the baseline, not the mean of the group."),
        source="arXiv:2305.14718",
    )
    priority: bool = limits.option(
        False,
        about=(
            "Whether a sample also weighs its advantage over the mean positive one: what "
            "sampling in proportion to advantages does in expectation."
        ),
        source="arXiv:2305.14718",
    )
    reference_kl: float = limits.number(
        0.0,
        min=0,
        max=100,
        about=(
            "Weight in the loss of log(policy / reference) of whole responses; A-LoL KL has "
            "it with ratio_of=none."
        ),
        source="arXiv:2305.14718",
    )
    reduction: Reduction = fields.reduction(Reduction.sequence_mean)

    @property
    def objective(self) -> Objective:
        if self.ratio_of is RatioOf.none:
            return Objective.likelihood
        is_token = self.ratio_of is RatioOf.token
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
        if self.ratio_of is RatioOf.sequence:
            ratio_B = ratio_of(log_ratio_of_responses(policy, batch))
            ratio_BT = ratio_B.unsqueeze(1).expand_as(ratio_BT)
        factor_BT = ratio_BT.detach().clamp(1 - self.clip, 1 + self.clip)
        factor_BT = batch.mask_BT if self.ratio_of is RatioOf.none else factor_BT
        credited_B = sequence_sum(factor_BT * batch.credit_BT * policy.logp_BT, batch)
        if self.reference_kl:
            away_BT = k1(policy.logp_BT, batch.reference_logp_BT)
            credited_B = credited_B - self.reference_kl * sequence_sum(away_BT, batch)
        return -(credited_B * sequence_weight(batch)).sum()


@dataclass(frozen=True)
class ALoL(Leftover):
    """A-LoL: likelihood of samples better than expected, with a clipped ratio (arXiv:2305.14718).

    Advantage-leftover lunch; its values are learned beside the policy, or before it."""

    value_rounds: int = limits.count(
        0,
        min=0,
        about=(
            "Rounds at the start in which only the value model learns, from samples of the "
            "policy as it begins; then it is frozen and the policy learns. 0: both learn in "
            "every round."
        ),
        source="arXiv:2305.14718",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.value_rounds and not self.value_baseline:
            raise UserError(
                f"algo.value_rounds={self.value_rounds} with algo.value_baseline=false: no value "
                "model is there to learn and freeze; pass algo.value_baseline=true"
            )

    @property
    def needs(self) -> Needs:
        return replace(super().needs, value_rounds=self.value_rounds)

    def at_round(self, round_: int, num_rounds: int) -> ALoL:
        """The algorithm of a round, counted from 0: only values learn in the first `value_rounds`,
        and only the policy after them."""
        if not self.value_rounds:
            return self
        form = LearnsValues if round_ < self.value_rounds else HasFrozenValues
        return form(**vars(self))


@dataclass(frozen=True)
class LearnsValues(ALoL):
    """A round in which the policy stays the reference, and the values of its samples are learned
    (arXiv:2305.14718, figure 1)."""

    def loss(self, policy: PolicyOutput, batch: Batch) -> LossOutput:
        """The error of the values, and a gradient of zero for the policy."""
        error = prompt_value_error(policy, batch)
        return LossOutput(error + 0 * policy.logp_BT.sum(), {"ppo/value_error": error})


@dataclass(frozen=True)
class HasFrozenValues(ALoL):
    """A round after the values were learned. No gradient at all reaches them: one of zero would
    let AdamW move them on by what it averages."""

    def loss(self, policy: PolicyOutput, batch: Batch) -> LossOutput:
        """The policy's loss; the error of the values is only reported."""
        error = prompt_value_error(policy, batch).detach()
        return LossOutput(self.policy_loss(policy, batch), {"ppo/value_error": error})

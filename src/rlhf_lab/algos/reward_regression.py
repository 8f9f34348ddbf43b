"""Regression of log-ratios on rewards over a prompt's samples, of whatever policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from rlhf_lab.algos import fields
from rlhf_lab.algos.advantages import centred, leave_one_out
from rlhf_lab.algos.common import (
    grouped,
    keep_all,
    log_ratio_of_responses,
    per_token,
    sequence_sum,
    sequence_value,
    sequence_weight,
)
from rlhf_lab.algos.options import AlgorithmOptions
from rlhf_lab.types import limits
from rlhf_lab.types.data import Batch, Credit, LossOutput, Needs, Objective, PolicyOutput, Reduction

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class CoPG(AlgorithmOptions):
    """CoPG: regularised rewards contrasted within a prompt, off-policy (arXiv:2406.19185).

    The gradient is that of the mean squared difference of regularised rewards over pairs,
    divided by 4 beta; its optimum does not depend on the policy that wrote the samples."""

    name: str = limits.name("copg")
    beta: float = fields.beta(
        "Reward subtracted for each nat of the policy's log-ratio to the reference."
    )
    reduction: Reduction = fields.reduction(Reduction.sequence_mean)
    objective: ClassVar[Objective] = Objective.comparison
    needs: ClassVar[Needs] = Needs(group_size=2, reference=True, scales_with_reward=True)

    def credit(self, reward_PG: Tensor, batch: Batch) -> Credit:
        """The reward itself, less the mean of the group's others; the loss adds the KL."""
        return Credit(per_token(leave_one_out(reward_PG), batch), keep_B=keep_all(reward_PG))

    def loss(self, policy: PolicyOutput, batch: Batch) -> LossOutput:
        """Log-likelihood of responses, weighted by reward less beta log-ratio less the others'."""
        logp_B = sequence_sum(policy.logp_BT, batch)
        away_B = (logp_B - sequence_sum(batch.reference_logp_BT, batch)).detach()
        away_PG = leave_one_out(grouped(away_B, batch))
        contrast_B = sequence_value(batch.credit_BT, batch) - self.beta * away_PG.flatten()
        return LossOutput(-(contrast_B * logp_B * sequence_weight(batch)).sum())


@dataclass(frozen=True)
class TBA(AlgorithmOptions):
    """TBA: trajectory balance over a group of samples, in its VarGrad form (arXiv:2503.18929).

    Half the variance over a group of the log-ratio to the reference less reward over beta: zero
    where the policy is reference times exp(reward / beta), for samples of any policy. Its gradient
    is that of copg times (K - 1) / (K beta)."""

    name: str = limits.name("tba")
    beta: float = fields.beta(
        "Temperature: the reward that one nat of log-ratio to the reference is worth.",
        source="arXiv:2503.18929, section 3",
    )
    reduction: Reduction = fields.reduction(Reduction.sequence_mean)
    objective: ClassVar[Objective] = Objective.comparison
    needs: ClassVar[Needs] = Needs(group_size=2, reference=True, scales_with_reward=True)

    def credit(self, reward_PG: Tensor, batch: Batch) -> Credit:
        """Reward over beta, less the group mean."""
        return Credit(per_token(centred(reward_PG) / self.beta, batch), keep_B=keep_all(reward_PG))

    def loss(self, policy: PolicyOutput, batch: Batch) -> LossOutput:
        """Half the squared difference of log-ratio and credit, both less their group means. The
        group mean estimates the log of the normalising constant."""
        away_B = sequence_sum(policy.logp_BT - batch.reference_logp_BT, batch)
        away_PG = grouped(away_B, batch)
        # Not `centred`: equal log-ratios, as at the start, have a gradient.
        far_B = (away_PG - away_PG.mean(dim=1, keepdim=True)).flatten()
        gap_B = far_B - sequence_value(batch.credit_BT, batch)
        return LossOutput(0.5 * (gap_B.square() * sequence_weight(batch)).sum())


@dataclass(frozen=True)
class Kimi(AlgorithmOptions):
    """Kimi k1.5: online mirror descent by regression on rewards (arXiv:2501.12599, eq. 3).

    Mirror descent towards each round's own behaviour policy: nothing keeps the policy near SFT
    over a whole run."""

    name: str = limits.name("kimi")
    tau: float = limits.number(
        0.1,
        min=0,
        max=1000,
        about="Strength of the pull to the policy that wrote the samples, in reward per nat.",
        source="arXiv:2501.12599, eq. 3",
    )
    reduction: Reduction = fields.reduction(Reduction.sequence_mean)
    objective: ClassVar[Objective] = Objective.comparison
    needs: ClassVar[Needs] = Needs(group_size=2, scales_with_reward=True)

    def credit(self, reward_PG: Tensor, batch: Batch) -> Credit:
        """Reward less the group mean, which estimates tau log Z."""
        return Credit(per_token(centred(reward_PG), batch), keep_B=keep_all(reward_PG))

    def loss(self, policy: PolicyOutput, batch: Batch) -> LossOutput:
        """Minus credited log-likelihood, plus tau / 2 times the squared log-ratio of responses."""
        credit_B = sequence_value(batch.credit_BT, batch)
        away_B = log_ratio_of_responses(policy, batch)
        loss_B = -credit_B * sequence_sum(policy.logp_BT, batch) + self.tau / 2 * away_B.square()
        return LossOutput((loss_B * sequence_weight(batch)).sum())

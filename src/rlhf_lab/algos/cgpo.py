"""The three optimizers of CGPO, policy optimisation under constraints.

A reward of 0 or less means that a sample violates a constraint; others are between 0 and 1 (see
`rewards.cgpo`, which gives such rewards).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from rlhf_lab.algos import fields
from rlhf_lab.algos.advantages import best_and_worst, centred_in_round
from rlhf_lab.algos.common import (
    credited_likelihood,
    grouped,
    k1,
    keep_all,
    per_token,
    sequence_sum,
    sequence_value,
    sequence_weight,
)
from rlhf_lab.algos.options import AlgorithmOptions
from rlhf_lab.algos.pairs import compared, marked, pair_output
from rlhf_lab.types import limits
from rlhf_lab.types.data import Batch, Credit, LossOutput, Needs, Objective, PolicyOutput, Reduction

if TYPE_CHECKING:
    from torch import Tensor


def kl_max() -> float:
    return limits.number(
        10.0,
        above=0,
        max=1e6,
        about=(
            "KL to the reference, in nats a response, from which on a sample earns nothing. The "
            "paper sets it for each task."
        ),
        source="arXiv:2409.20370, KL_max",
    )


def kl_of(reward_PG: Tensor, batch: Batch) -> Tensor:
    """log(behaviour / reference) of each sample, nats, in the shape of the rewards."""
    kl_B = sequence_sum(k1(batch.behavior_logp_BT, batch.reference_logp_BT), batch)
    return kl_B.view_as(reward_PG)


@dataclass(frozen=True)
class CRPG(AlgorithmOptions):
    """CRPG: policy gradient on calibrated rewards under constraints (arXiv:2409.20370).

    Rewards shrink to 0 as a sample gets kl_max from the reference, less their mean."""

    name: str = limits.name("crpg")
    kl_max: float = kl_max()
    reduction: Reduction = fields.reduction(Reduction.sequence_mean)
    objective: ClassVar[Objective] = Objective.likelihood
    needs: ClassVar[Needs] = Needs(reference=True, scales_with_reward=True, constraints=True)

    def credit(self, reward_PG: Tensor, batch: Batch) -> Credit:
        """Reward times max(0, 1 - KL / kl_max), less its mean over the round."""
        near_PG = (1 - kl_of(reward_PG, batch) / self.kl_max).clamp(min=0)
        earned_PG = reward_PG * near_PG
        return Credit(per_token(centred_in_round(earned_PG), batch), keep_B=keep_all(reward_PG))

    def loss(self, policy: PolicyOutput, batch: Batch) -> LossOutput:
        """Minus the log-likelihood of whole responses times their credit."""
        return credited_likelihood(policy, batch)


@dataclass(frozen=True)
class CRRAFT(AlgorithmOptions):
    """CRRAFT: likelihood of the best sample that violates nothing, by reward (arXiv:2409.20370).

    The best of each group's samples that violate nothing and are within kl_max."""

    name: str = limits.name("crraft")
    kl_max: float = kl_max()
    reduction: Reduction = fields.reduction(Reduction.sequence_mean)
    objective: ClassVar[Objective] = Objective.comparison
    needs: ClassVar[Needs] = Needs(
        group_size=2, reference=True, trained_rows=1, scales_with_reward=True, constraints=True
    )

    def credit(self, reward_PG: Tensor, batch: Batch) -> Credit:
        """Its reward on the best sample; nothing else is trained on. Groups without one that
        violates nothing and is near enough are dropped."""
        import torch

        allowed_PG = reward_PG.clamp(min=0) * (kl_of(reward_PG, batch) <= self.kl_max)
        best_PG = torch.nn.functional.one_hot(allowed_PG.argmax(dim=1), reward_PG.shape[1])
        return marked(best_PG * allowed_PG, batch)

    def loss(self, policy: PolicyOutput, batch: Batch) -> LossOutput:
        """Minus the log-likelihood of whole responses times their reward."""
        return credited_likelihood(policy, batch)


@dataclass(frozen=True)
class CODPO(AlgorithmOptions):
    """CODPO: online DPO whose preferred sample violates nothing (arXiv:2409.20370, eq. 14).

    DPO of the best sample against the worst, which is one that violates a constraint if any
    does, plus the likelihood of the best."""

    name: str = limits.name("codpo")
    beta: float = fields.beta(
        "Strength of the pull to the reference, in 1 / nats.", "arXiv:2409.20370, eq. 14"
    )
    likelihood: float = limits.number(
        5.0,
        min=0,
        max=1e6,
        about="Weight of the mean log-likelihood of the preferred sample's tokens.",
        source="lambda of arXiv:2409.20370, eq. 14; 5: trl, cgpo_config",
    )
    reduction: Reduction = fields.reduction(Reduction.sequence_mean)
    objective: ClassVar[Objective] = Objective.comparison
    needs: ClassVar[Needs] = Needs(group_size=2, reference=True, trained_rows=2, constraints=True)

    def credit(self, reward_PG: Tensor, batch: Batch) -> Credit:
        """+1 for the best sample and -1 for the worst. Groups in which all samples violate a
        constraint, or all rewards are equal, are dropped."""
        best_PG, worst_PG = best_and_worst(reward_PG)
        is_usable_P1 = reward_PG.amax(dim=1, keepdim=True) > 0
        return marked((best_PG - worst_PG) * is_usable_P1, batch)

    def loss(self, policy: PolicyOutput, batch: Batch) -> LossOutput:
        """-log sigmoid of beta times the difference of log-ratios, less the likelihood term."""
        from torch.nn.functional import logsigmoid

        gap_PGG, weight_PGG = compared(policy, batch)
        output = pair_output(-logsigmoid(self.beta * gap_PGG), self.beta * gap_PGG, weight_PGG)
        is_best_PG = grouped(sequence_value(batch.credit_BT, batch), batch) > 0
        logp_PG = grouped(sequence_value(policy.logp_BT, batch), batch) * is_best_PG
        weight_P1 = grouped(sequence_weight(batch), batch).sum(dim=1, keepdim=True)
        pull = self.likelihood * (logp_PG * weight_P1).sum()
        return LossOutput(output.loss - pull, output.metrics)

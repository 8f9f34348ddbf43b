"""REINFORCE and its baselines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from rlhf_lab.algos import fields
from rlhf_lab.algos.advantages import centred, centred_in_round, to_go, whitened
from rlhf_lab.algos.common import credited_likelihood, keep_all, per_token, token_surrogate
from rlhf_lab.algos.kl import KLPenalty
from rlhf_lab.types import limits
from rlhf_lab.types.data import Batch, Credit, LossOutput, Needs, Objective, PolicyOutput, Reduction

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class REINFORCE(KLPenalty):
    """REINFORCE: log-likelihood weighted by reward less a baseline (arXiv:2402.14740, eq. 7).

    One reward per response, and an optional mean baseline."""

    name: str = limits.name("reinforce")
    kl_coef: float = fields.kl_in_reward(0.05)
    baseline: bool = limits.option(
        True, about="Whether the mean reward of the round's samples is subtracted."
    )
    reduction: Reduction = fields.reduction(Reduction.sequence_mean)
    objective: ClassVar[Objective] = Objective.likelihood
    own_needs: ClassVar[Needs] = Needs(scales_with_reward=True)

    def credit(self, reward_PG: Tensor, batch: Batch) -> Credit:
        """Reward less KL, less the mean of the same over the round."""
        return_PG = self.less_kl(reward_PG, batch)
        advantage_PG = centred_in_round(return_PG) if self.baseline else return_PG
        return Credit(per_token(advantage_PG, batch), keep_B=keep_all(reward_PG))

    def loss(self, policy: PolicyOutput, batch: Batch) -> LossOutput:
        """Minus the log-likelihood of whole responses, weighted by credit."""
        return self.plus_kl(credited_likelihood(policy, batch), policy, batch)


@dataclass(frozen=True)
class ReinforcePlusPlus(KLPenalty):
    """REINFORCE++: whitened rewards-to-go with KL per token, PPO's clip (arXiv:2501.03262).

    Rewards-to-go of tokens, whitened over the round, under PPO's clip."""

    name: str = limits.name("reinforce_plus_plus")
    kl_coef: float = fields.kl_in_reward(0.01)
    clip: float = fields.clip(0.2)
    reduction: Reduction = fields.reduction(Reduction.token_mean)
    objective: ClassVar[Objective] = Objective.token_ratio
    own_needs: ClassVar[Needs] = Needs()

    def credit(self, reward_PG: Tensor, batch: Batch) -> Credit:
        """Reward less the KL of this token and all later ones, whitened over the round."""
        return_BT = to_go(self.token_rewards(reward_PG, batch))
        return Credit(whitened(return_BT, batch.mask_BT), keep_B=keep_all(reward_PG))

    def loss(self, policy: PolicyOutput, batch: Batch) -> LossOutput:
        """Clipped surrogate per token."""
        output = token_surrogate(policy, batch, self.clip, self.clip)
        return self.plus_kl(output, policy, batch)


@dataclass(frozen=True)
class ReMax(KLPenalty):
    """ReMax: the greedy response's reward is the baseline (arXiv:2310.10505, algorithm 1).

    The last sample of each group is greedy and the baseline of the others;
    run.group_size=2 is the paper's setting."""

    name: str = limits.name("remax")
    kl_coef: float = fields.kl_in_reward(0.05)
    reduction: Reduction = fields.reduction(Reduction.sequence_mean)
    objective: ClassVar[Objective] = Objective.likelihood
    own_needs: ClassVar[Needs] = Needs(group_size=2, greedy=True, scales_with_reward=True)

    def credit(self, reward_PG: Tensor, batch: Batch) -> Credit:
        """Reward less KL, less the reward of the greedy sample, which is not trained on."""
        import torch

        advantage_PG = self.less_kl(reward_PG, batch) - reward_PG[:, -1:]
        keep_PG = torch.ones_like(reward_PG, dtype=torch.bool)
        keep_PG[:, -1] = False
        return Credit(per_token(advantage_PG, batch), keep_B=keep_PG.flatten())

    def loss(self, policy: PolicyOutput, batch: Batch) -> LossOutput:
        """Minus the log-likelihood of whole responses, weighted by credit."""
        return self.plus_kl(credited_likelihood(policy, batch), policy, batch)


@dataclass(frozen=True)
class AsymRE(KLPenalty):
    """AsymRE: off-policy REINFORCE with a baseline below the mean reward (arXiv:2506.20520).

    The baseline is the group mean plus a shift. There is no importance weight: below 0, the
    shift keeps the policy near the good samples of an older one; from 0 on, it can be pushed off
    all of them."""

    name: str = limits.name("asymre")
    shift: float = limits.number(
        -0.1,
        min=-limits.LARGEST_SCORE,
        max=limits.LARGEST_SCORE,
        about=(
            "Added to the group mean to make the baseline, in units of the reward. The older the "
            "samples, the farther below 0 it should be."
        ),
        source="arXiv:2506.20520, which has no number for other rewards than its own",
    )
    kl_coef: float = fields.kl_in_reward(0.0)
    reduction: Reduction = fields.reduction(Reduction.sequence_mean)
    objective: ClassVar[Objective] = Objective.likelihood
    own_needs: ClassVar[Needs] = Needs(group_size=2, scales_with_reward=True)

    def credit(self, reward_PG: Tensor, batch: Batch) -> Credit:
        """Reward less KL, less the group mean of the same, less the shift."""
        advantage_PG = centred(self.less_kl(reward_PG, batch)) - self.shift
        return Credit(per_token(advantage_PG, batch), keep_B=keep_all(reward_PG))

    def loss(self, policy: PolicyOutput, batch: Batch) -> LossOutput:
        """Minus the log-likelihood of whole responses, weighted by credit."""
        return self.plus_kl(credited_likelihood(policy, batch), policy, batch)

"""PPO with a value model (arXiv:1707.06347, eq. 7; set-up of N+, arXiv:2403.17031)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from torch import Tensor

from rlhf_lab.algos.advantages import gae, token_rewards, whitened
from rlhf_lab.algos.common import (
    keep_all,
    require_in,
    require_up_to,
    token_surrogate,
    value_error,
)
from rlhf_lab.types import (
    Batch,
    Credit,
    LossOutput,
    Needs,
    Objective,
    PolicyOutput,
    Reduction,
    ValueModel,
)


@dataclass(frozen=True)
class PPO:
    """kl_coef: reward lost per nat of a token's k1 to the reference; steered so that a sequence is
    kl_target nats away (0: fixed), within kl_horizon samples (arXiv:1909.08593, section 2.2).
    gamma, lam: of GAE. clip, value_clip: how far ratio and value may move (value_clip=0: freely).
    shared_trunk: values from a head on the policy. reference_decay: of the reference as a moving
    average of the policy (1: it stays); with whitening and large batches what PPO needs
    (arXiv:2404.10719, section 5).
    """

    name: str = "ppo"
    kl_coef: float = 0.05
    kl_target: float = 0.0
    kl_horizon: int = 10_000
    gamma: float = 1.0
    lam: float = 0.95
    clip: float = 0.2
    value_clip: float = 0.2
    value_coef: float = 0.1
    whiten_advantages: bool = True
    whiten_rewards: bool = False
    shared_trunk: bool = False
    reference_decay: float = 1.0
    reduction: Reduction = Reduction.token_mean
    objective: ClassVar[Objective] = Objective.token_ratio

    def __post_init__(self) -> None:
        require_up_to(self, kl_coef=100, kl_target=1e6, gamma=1, lam=1, reference_decay=1)
        require_up_to(self, clip=1, value_clip=1e6, value_coef=1e3)
        require_in("algo.kl_horizon", self.kl_horizon, 1, 1e12)

    @property
    def needs(self) -> Needs:
        values = ValueModel.shared if self.shared_trunk else ValueModel.own
        return Needs(1, False, 1.0, values, int(self.reference_decay < 1), self.reference_decay)

    def adapted(self, kl: float, num_samples: int) -> PPO:
        """The coefficient after a round that was kl nats a sequence from the reference."""
        if not self.kl_target:
            return self
        error = min(0.2, max(-0.2, kl / self.kl_target - 1))
        step = error * min(1.0, num_samples / self.kl_horizon)
        return self.with_kl_coef(self.kl_coef * (1 + step))

    def with_kl_coef(self, kl_coef: float) -> PPO:
        return replace(self, kl_coef=kl_coef)

    def credit(self, reward_PG: Tensor, batch: Batch) -> Credit:
        """GAE on the reward per token; targets are advantages before whitening, plus values."""
        reward_BT = token_rewards(reward_PG, self.kl_coef, batch)
        if self.whiten_rewards:
            reward_BT = whitened(reward_BT, batch.mask_BT, keep_mean=True)
        gain_BT = gae(reward_BT, batch.value_BT, batch.mask_BT, self.gamma, self.lam)
        credit_BT = whitened(gain_BT, batch.mask_BT) if self.whiten_advantages else gain_BT
        target_BT = (gain_BT + batch.value_BT) * batch.mask_BT
        return Credit(credit_BT, keep_all(reward_PG), target_BT)

    def loss(self, policy: PolicyOutput, batch: Batch) -> LossOutput:
        """Clipped surrogate per token, plus the clipped error of the values."""
        output = token_surrogate(policy, batch, self.clip, self.clip)
        error = (value_error(policy, batch, self.value_clip) * batch.weight_BT).sum()
        metrics = {"ppo/value_error": error}
        return LossOutput(output.loss + self.value_coef * error, metrics, output.clipped_BT)

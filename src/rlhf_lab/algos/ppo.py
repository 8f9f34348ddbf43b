"""PPO, and the base class of all algorithms with values (PPO, MA-PPO, MDPO, SAO)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from rlhf_lab.algos import fields
from rlhf_lab.algos.advantages import gae, lam_of_length, symexp, symlog, whitened
from rlhf_lab.algos.common import keep_all, token_surrogate, value_error
from rlhf_lab.algos.kl import KLPenalty
from rlhf_lab.types import limits
from rlhf_lab.types.data import (
    Batch,
    Bins,
    Credit,
    LossOutput,
    Metrics,
    Needs,
    Objective,
    PolicyOutput,
    Reduction,
    ValueModel,
)
from rlhf_lab.types.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor


def histogram(target_BT: Tensor, bins: Bins, spread: float) -> Tensor:
    """Share of each bin in a normal distribution around the target, cut to the range of the bins,
    BTH. spread: its standard deviation over the width of a bin. Targets beyond the range count as
    its ends."""
    import torch

    edge_H = torch.linspace(bins.least, bins.most, bins.number + 1, device=target_BT.device)
    width = (bins.most - bins.least) / bins.number
    away = edge_H - target_BT.clamp(bins.least, bins.most).unsqueeze(-1)
    below = torch.erf(away / (math.sqrt(2) * spread * width))
    return below.diff(dim=-1) / (below[..., -1:] - below[..., :1])


def histogram_error(policy: PolicyOutput, batch: Batch, bins: Bins, spread: float) -> Tensor:
    """Cross-entropy of the targets' histograms and the value model's, BT; 0 on padding."""
    if policy.value_logits_BTH is None:
        raise ValueError("a value model with bins is needed, and the engine has none")
    share_BTH = histogram(batch.target_BT, bins, spread)
    logp_BTH = policy.value_logits_BTH.log_softmax(dim=-1)
    return -(share_BTH * logp_BTH).sum(dim=-1) * batch.mask_BT


@dataclass(frozen=True)
class ActorCritic(KLPenalty):
    """Advantages from a value model, and a KL penalty, by default in each token's reward.
    Algorithms add the loss of the policy (`surrogate`) and may change what an action is."""

    name: str = limits.name("")
    kl_coef: float = fields.kl_in_reward(0.05)
    kl_target: float = limits.number(
        0.0,
        min=0,
        max=1e6,
        about=(
            "KL to the reference in nats per sequence towards which kl_coef is adapted after "
            "each round; 0 keeps kl_coef fixed."
        ),
        source="arXiv:1909.08593, section 2.2",
    )
    kl_horizon: int = limits.count(
        10_000,
        max=10**12,
        about="Samples over which kl_coef adapts to kl_target; more make it slower.",
        source="arXiv:1909.08593, section 2.2",
    )
    gamma: float = limits.share(
        1.0,
        about=(
            "Discount of later rewards per step of generalised advantage estimation; 1 is none."
        ),
        source="arXiv:1506.02438",
    )
    lam: float = limits.share(
        0.95,
        about=(
            "Lambda of generalised advantage estimation: 0 trusts the value model alone, 1 "
            "the sampled rewards alone."
        ),
        source="arXiv:1506.02438",
    )
    lam_alpha: float = fields.lam_alpha()
    value_lam: float = fields.value_lam()
    value_clip: float = limits.number(
        0.2,
        min=0,
        max=1e6,
        about=(
            "Points of reward that a value may move from what it was at the round's start "
            "before its loss improves no further; 0 does not clip."
        ),
        source="arXiv:2403.17031",
    )
    value_coef: float = limits.number(
        0.1,
        min=0,
        max=1e3,
        about="Weight of the value loss beside the policy loss.",
    )
    whiten_advantages: bool = limits.option(
        True, about="Whether advantages are scaled to mean 0 and variance 1 over the round."
    )
    whiten_rewards: bool = limits.option(
        False, about="Whether token rewards are scaled to variance 1 before GAE."
    )
    shared_trunk: bool = limits.option(
        False, about="Whether values come from a head on the policy, not a separate model."
    )
    symlog_values: bool = limits.option(
        False,
        about="Whether the value model learns symlog(return); values are symexp of its numbers.",
        source="DreamerV3, arXiv:2301.04104",
    )
    value_bins: int = limits.count(
        0,
        min=0,
        max=10_000,
        about=(
            "Bins of values that are learned by classification (HL-Gauss), the value being the "
            "mean of their histogram; 0 learns values by their squared error."
        ),
        source="arXiv:2403.03950",
    )
    value_min: float = limits.score(
        -10.0, about="Lower end of the bins, in units of the targets of values."
    )
    value_max: float = limits.score(
        10.0, about="Upper end of the bins, in units of the targets of values."
    )
    value_spread: float = limits.number(
        0.75,
        above=0,
        max=100,
        about="Standard deviation of the histogram of a target, in widths of a bin.",
        source="arXiv:2403.03950, section 3.1",
    )
    reference_decay: float = limits.share(
        1.0,
        about="Share of the reference kept each round while it moves to the policy; 1 fixes it.",
        source="arXiv:2404.10719, section 5",
    )
    reduction: Reduction = fields.reduction(Reduction.token_mean)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.value_bins:
            return
        if self.value_bins < 2 or self.value_min >= self.value_max:
            raise UserError(
                f"algo.value_bins={self.value_bins} from algo.value_min={self.value_min} to "
                f"algo.value_max={self.value_max}: pass two or more bins of a range above zero"
            )
        if self.value_clip:
            raise UserError(
                f"algo.value_clip={self.value_clip} with algo.value_bins={self.value_bins}: a "
                "histogram has no squared error to clip; pass algo.value_clip=0"
            )

    @property
    def bins(self) -> Bins | None:
        """Those of the value model, if it classifies."""
        if not self.value_bins:
            return None
        return Bins(self.value_bins, self.value_min, self.value_max)

    @property
    def objective(self) -> Objective:
        return Objective.token_ratio

    @property
    def needs(self) -> Needs:
        values = ValueModel.shared if self.shared_trunk else ValueModel.own
        return Needs(
            values=values,
            reference_every=int(self.reference_decay < 1),
            reference_decay=self.reference_decay,
            bins=self.bins,
            reference=bool(self.kl_coef or self.kl_target),
            scales_with_reward=not self.whiten_advantages,
            lam=self.lam,
        )

    def state(self) -> dict[str, float]:
        return {"kl_coef": self.kl_coef}

    def with_state(self, state: Mapping[str, float]) -> Self:
        return replace(self, kl_coef=state.get("kl_coef", self.kl_coef))

    def adapted(self, metrics: Metrics, num_samples: int) -> Self:
        """The coefficient after a round, by its KL to the reference in nats a sequence."""
        if not self.kl_target:
            return self
        kl = metrics["kl/sampled_reference_k1"]
        error = min(0.2, max(-0.2, kl / self.kl_target - 1))
        step = error * min(1.0, num_samples / self.kl_horizon)
        return replace(self, kl_coef=self.kl_coef * (1 + step))

    def credit(self, reward_PG: Tensor, batch: Batch) -> Credit:
        """GAE on the reward per token; targets are advantages before whitening, plus values."""
        reward_BT = self.token_rewards(reward_PG, batch)
        if self.whiten_rewards:
            reward_BT = whitened(reward_BT, batch.mask_BT, keep_mean=True)
        if self.symlog_values:
            batch = replace(batch, value_BT=symexp(batch.value_BT))
        gain_BT, return_BT = self.advantages(reward_BT, batch)
        target_BT = symlog(return_BT) if self.symlog_values else return_BT
        credit_BT = whitened(gain_BT, batch.mask_BT) if self.whiten_advantages else gain_BT
        return Credit(credit_BT, keep_all(reward_PG), target_BT, return_BT)

    def advantages(self, reward_BT: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Advantages and targets of the values, BT each, from the reward of each token."""
        gain_BT, learnt_BT = self.gains(reward_BT, batch.value_BT, batch.mask_BT)
        return gain_BT, (learnt_BT + batch.value_BT) * batch.mask_BT

    def gains(self, reward_BT: Tensor, value_BT: Tensor, mask_BT: Tensor) -> tuple[Tensor, Tensor]:
        """Advantages, and those by which values are to change, BT each."""
        lam = lam_of_length(mask_BT, self.lam_alpha) if self.lam_alpha else self.lam
        gain_BT = gae(reward_BT, value_BT, mask_BT, self.gamma, lam)
        if self.value_lam < 0:
            return gain_BT, gain_BT
        return gain_BT, gae(reward_BT, value_BT, mask_BT, self.gamma, self.value_lam)

    def loss(self, policy: PolicyOutput, batch: Batch) -> LossOutput:
        """The policy's surrogate, plus the clipped error of the values."""
        output = self.plus_kl(self.surrogate(policy, batch), policy, batch)
        error = self.error(policy, batch)
        metrics = {**output.metrics, "ppo/value_error": error}
        return LossOutput(output.loss + self.value_coef * error, metrics, output.clipped_BT)

    def surrogate(self, policy: PolicyOutput, batch: Batch) -> LossOutput:
        """The loss of the policy alone."""
        raise NotImplementedError

    def error(self, policy: PolicyOutput, batch: Batch) -> Tensor:
        """The error of the values under the token weights, a scalar."""
        return (self.value_terms(policy, batch) * batch.weight_BT).sum()

    def value_terms(self, policy: PolicyOutput, batch: Batch) -> Tensor:
        """The clipped squared error of each value, or the cross-entropy of its histogram, BT."""
        if self.bins is None:
            return value_error(policy, batch, self.value_clip)
        return histogram_error(policy, batch, self.bins, self.value_spread)


@dataclass(frozen=True)
class PPO(ActorCritic):
    """PPO with a value model (arXiv:1707.06347, eq. 7; set-up of N+, arXiv:2403.17031).

    PPO with advantages from a value model and a KL penalty in each token's reward."""

    name: str = limits.name("ppo")
    clip: float = fields.clip(0.2)

    def surrogate(self, policy: PolicyOutput, batch: Batch) -> LossOutput:
        """Clipped surrogate per token."""
        return token_surrogate(policy, batch, self.clip, self.clip)

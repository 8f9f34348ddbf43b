"""MA-PPO: PPO whose actions are runs of tokens, as in MA-RLHF (arXiv:2410.02743, section 3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import pad

from rlhf_lab.algos.advantages import gae, token_rewards, whitened
from rlhf_lab.algos.common import clipped_surrogate, keep_all, value_error
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


@dataclass(frozen=True)
class MacroPPO(limits.Limited, key="algo"):
    """macro_tokens: tokens of one macro action (n-gram termination); 1 is ppo. The rest as in ppo.

    A macro action has one advantage, one ratio (the product of its tokens') and one value, that of
    the state before its first token.
    """

    name: str = "ma_ppo"
    macro_tokens: int = limits.count(5, most=10**6)
    kl_coef: float = limits.number(0.05, least=0, most=100)
    gamma: float = limits.share(1.0)
    lam: float = limits.share(0.95)
    clip: float = limits.share(0.2)
    value_clip: float = limits.number(0.2, least=0, most=1e6)
    value_coef: float = limits.number(0.1, least=0, most=1e3)
    reduction: Reduction = Reduction.token_mean
    needs: ClassVar[Needs] = Needs(values=ValueModel.own)

    @property
    def objective(self) -> Objective:
        return Objective.token_ratio if self.macro_tokens == 1 else Objective.sequence_ratio

    def _sums(self, value_BT: Tensor) -> Tensor:
        """Sum over each macro action, at each of its tokens, BT."""
        rows, width = value_BT.shape
        padded = pad(value_BT, (0, -width % self.macro_tokens)).view(rows, -1, self.macro_tokens)
        return padded.sum(dim=2, keepdim=True).expand_as(padded).reshape(rows, -1)[:, :width]

    def _first(self, batch: Batch) -> Tensor:
        """1 at the first token of each macro action, BT."""
        place_T = torch.arange(batch.mask_BT.shape[1], device=batch.mask_BT.device)
        return batch.mask_BT * (place_T % self.macro_tokens == 0)

    def credit(self, reward_PG: Tensor, batch: Batch) -> Credit:
        """GAE over macro actions, whitened over tokens; only first tokens have a target."""
        reward_BT = self._sums(token_rewards(reward_PG, self.kl_coef, batch))
        first_BT, every = self._first(batch), slice(None, None, self.macro_tokens)
        reward_BM, value_BM = reward_BT[:, every], batch.value_BT[:, every]
        gain_BT = torch.zeros_like(reward_BT)
        gain_BT[:, every] = gae(reward_BM, value_BM, first_BT[:, every], self.gamma, self.lam)
        credit_BT = whitened(self._sums(gain_BT) * batch.mask_BT, batch.mask_BT)
        return Credit(credit_BT, keep_all(reward_PG), (gain_BT + batch.value_BT) * first_BT)

    def loss(self, policy: PolicyOutput, batch: Batch) -> LossOutput:
        """Clipped surrogate per macro action, plus the clipped error of its value."""
        ratio_BT = self._sums((policy.logp_BT - batch.proximal_logp_BT) * batch.mask_BT).exp()
        loss_BT, cut_BT = clipped_surrogate(ratio_BT, batch.credit_BT, self.clip, self.clip)
        # A macro action weighs as much as its tokens do, so that its value does too.
        weight_BT = self._first(batch) * self._sums(batch.weight_BT)
        error = (value_error(policy, batch, self.value_clip) * weight_BT).sum()
        loss = (loss_BT * batch.weight_BT).sum() + self.value_coef * error
        return LossOutput(loss, {"ppo/value_error": error}, cut_BT * batch.mask_BT)

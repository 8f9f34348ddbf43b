"""MA-PPO: PPO whose actions are runs of tokens, as in MA-RLHF (arXiv:2410.02743, section 3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from rlhf_lab.algos import fields
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

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class MacroPPO(limits.Limited, key="algo"):
    """PPO whose actions are runs of tokens with one advantage, ratio and value each."""

    name: str = limits.name("ma_ppo")
    macro_tokens: int = limits.count(
        5,
        most=10**6,
        about="Tokens of one macro action (n-gram termination); 1 is PPO.",
        source="arXiv:2410.02743, section 3",
    )
    kl_coef: float = fields.kl_in_reward(0.05)
    gamma: float = fields.gamma()
    lam: float = fields.lam()
    clip: float = fields.clip(0.2, of="macro action's")
    value_clip: float = fields.value_clip()
    value_coef: float = fields.value_coef()
    reduction: Reduction = fields.reduction(Reduction.token_mean)
    needs: ClassVar[Needs] = Needs(values=ValueModel.own)

    @property
    def objective(self) -> Objective:
        return Objective.token_ratio if self.macro_tokens == 1 else Objective.sequence_ratio

    def _sums(self, value_BT: Tensor) -> Tensor:
        """Sum over each macro action, at each of its tokens, BT."""
        from torch.nn.functional import pad

        rows, width = value_BT.shape
        padded = pad(value_BT, (0, -width % self.macro_tokens)).view(rows, -1, self.macro_tokens)
        return padded.sum(dim=2, keepdim=True).expand_as(padded).reshape(rows, -1)[:, :width]

    def _first(self, batch: Batch) -> Tensor:
        """1 at the first token of each macro action, BT."""
        import torch

        place_T = torch.arange(batch.mask_BT.shape[1], device=batch.mask_BT.device)
        return batch.mask_BT * (place_T % self.macro_tokens == 0)

    def credit(self, reward_PG: Tensor, batch: Batch) -> Credit:
        """GAE over macro actions, whitened over tokens; only first tokens have a target."""
        import torch

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

"""MA-PPO: actions of several tokens, and how a response is divided into them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from rlhf_lab.algos import fields
from rlhf_lab.algos.common import clipped_surrogate
from rlhf_lab.algos.off_policy import ratio_of
from rlhf_lab.algos.ppo import ActorCritic
from rlhf_lab.types import limits
from rlhf_lab.types.data import Batch, LossOutput, Objective, PolicyOutput
from rlhf_lab.types.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

# Of the published code's randomized_ngram_selection.
RANDOM_TOKENS = (1, 2, 3, 5, 10)
# Odd numbers that spread the bits of a row's tokens, and a modulus that keeps products in 64 bits.
SPREAD, STEP, MODULUS = 2654435761, 40503, 2**31 - 1


class Termination(StrEnum):
    """Where a macro action ends: after a fixed or a random number of tokens, before a token that
    its writer found less likely than the token before it (perplexity), or with a turn of an
    episode."""

    fixed = "fixed"
    random = "random"
    perplexity = "perplexity"
    turn = "turn"


class MacroValue(StrEnum):
    """Which mean of its tokens' values is the value of a macro action: the first, the last, equal
    shares, or shares that fall as 1 / place."""

    first = "first"
    last = "last"
    equal = "equal"
    position = "position"


@dataclass(frozen=True)
class MacroActions:
    """The macro actions of a batch. index_BT: number of each token's macro action in its row.
    tokens: length of all of them, 0 if it varies."""

    index_BT: Tensor
    first_BT: Tensor
    mask_BT: Tensor
    tokens: int

    def sums(self, value_BT: Tensor) -> Tensor:
        """Sum over each macro action, at each of its tokens, BT."""
        import torch
        from torch.nn.functional import pad

        if not self.tokens:
            sum_BM = torch.zeros_like(value_BT).scatter_add(1, self.index_BT, value_BT)
            return sum_BM.gather(1, self.index_BT)
        rows, width = value_BT.shape
        padded = pad(value_BT, (0, -width % self.tokens)).view(rows, -1, self.tokens)
        return padded.sum(dim=2, keepdim=True).expand_as(padded).reshape(rows, -1)[:, :width]

    def compact(self, value_BT: Tensor) -> Tensor:
        """The values at first tokens, one column for each macro action, BM."""
        import torch

        num = int(self.index_BT.max()) + 1
        value_BM = torch.zeros_like(value_BT[:, :num])
        return value_BM.scatter_add(1, self.index_BT, value_BT * self.first_BT)

    def spread(self, value_BM: Tensor) -> Tensor:
        """A number for each macro action at all of its tokens, BT."""
        return value_BM.gather(1, self.index_BT) * self.mask_BT

    def values(self, value_BT: Tensor, kind: MacroValue) -> Tensor:
        """The value of each macro action at all of its tokens, BT."""
        import torch

        if kind is MacroValue.first:
            return self.sums(value_BT * self.first_BT)
        at_T = torch.arange(value_BT.shape[1], device=value_BT.device).to(value_BT.dtype)
        place_BT = at_T - self.sums(at_T * self.first_BT)
        length_BT = self.sums(self.mask_BT)
        if kind is MacroValue.last:
            return self.sums(value_BT * self.mask_BT * (place_BT == length_BT - 1))
        share_BT = self.mask_BT / (1 if kind is MacroValue.equal else place_BT + 1)
        return self.sums(value_BT * share_BT) / self.sums(share_BT).clamp(min=1e-9)


def macro_actions(kind: Termination, tokens: int, batch: Batch) -> MacroActions:
    """The macro actions of each row, which depend on its own response alone."""
    import torch

    place_T = torch.arange(batch.mask_BT.shape[1], device=batch.mask_BT.device)
    if kind is Termination.fixed:
        index_BT = (place_T // tokens).expand(batch.mask_BT.shape)
    elif kind is Termination.random:
        ends_BM = random_lengths(batch).cumsum(dim=1)
        index_BT = torch.searchsorted(ends_BM, place_T.repeat(len(batch), 1), right=True)
    elif kind is Termination.turn:
        index_BT = batch.turn_BT
    else:
        logp_BT = batch.behavior_logp_BT
        index_BT = torch.zeros_like(logp_BT, dtype=torch.long)
        index_BT[:, 1:] = (logp_BT[:, 1:] < logp_BT[:, :-1]).cumsum(dim=1)
    first_BT = batch.mask_BT.clone()
    first_BT[:, 1:] *= index_BT[:, 1:] != index_BT[:, :-1]
    length = tokens if kind is Termination.fixed else 0
    return MacroActions(index_BT, first_BT, batch.mask_BT, length)


def random_lengths(batch: Batch) -> Tensor:
    """Lengths of a row's macro actions, BM, drawn by a number that its tokens give: a row has the
    same ones in credit and loss, in every micro-batch, and after a restart."""
    import torch

    place_T = torch.arange(1, batch.mask_BT.shape[1] + 1, device=batch.mask_BT.device)
    tokens_BT = (batch.response_BT + 1) * batch.mask_BT.long()
    key_B1 = ((tokens_BT * place_T * STEP) % MODULUS).sum(dim=1, keepdim=True) % MODULUS
    draw_BM = (key_B1 + place_T * STEP) % MODULUS * SPREAD % MODULUS
    choices = torch.tensor(RANDOM_TOKENS, device=draw_BM.device)
    return choices[(draw_BM // 1009) % len(RANDOM_TOKENS)]


@dataclass(frozen=True)
class MacroPPO(ActorCritic):
    """MA-PPO: PPO whose actions are runs of tokens, as in MA-RLHF (arXiv:2410.02743, section 3).

    PPO whose actions are runs of tokens with one advantage, ratio and value each."""

    name: str = limits.name("ma_ppo")
    macro_tokens: int = limits.count(
        5,
        max=10**6,
        about="Tokens of one macro action (n-gram termination); 1 is PPO.",
        source="arXiv:2410.02743, section 3",
    )
    termination: Termination = limits.option(
        Termination.fixed,
        about=(
            "Where a macro action ends: after macro_tokens (fixed), after 1, 2, 3, 5 or 10 tokens "
            "(random), before a token less likely than the one before it (perplexity), or with "
            "each turn of an episode (turn)."
        ),
        source="arXiv:2410.02743, section 3.2; turns: after ArCHer, arXiv:2402.19446",
    )
    macro_value: MacroValue = limits.option(
        MacroValue.first,
        about=(
            "Value of a macro action: that before its first token, that before its last one, their "
            "mean (equal), or a mean with shares that fall as 1 / place (position)."
        ),
        source="arXiv:2410.02743, section 3.2",
    )
    clip: float = fields.clip(0.2, of="macro action's")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.macro_value is not MacroValue.first and (self.symlog_values or self.value_bins):
            raise UserError(
                f"algo.macro_value={self.macro_value} with squashed values or bins of values: what "
                "is learned is of one value, not of a mean; pass algo.macro_value=first, or "
                "algo.symlog_values=false and algo.value_bins=0"
            )

    @property
    def objective(self) -> Objective:
        is_one = self.termination is Termination.fixed and self.macro_tokens == 1
        return Objective.token_ratio if is_one else Objective.sequence_ratio

    def _actions(self, batch: Batch) -> MacroActions:
        return macro_actions(self.termination, self.macro_tokens, batch)

    def advantages(self, reward_BT: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """GAE over macro actions; only first tokens have a target."""
        actions = self._actions(batch)
        value_BT = actions.values(batch.value_BT, self.macro_value)
        reward_BM, value_BM, mask_BM = map(
            actions.compact, (actions.sums(reward_BT), value_BT, batch.mask_BT)
        )
        gain_BT, learnt_BT = map(actions.spread, self.gains(reward_BM, value_BM, mask_BM))
        return gain_BT, (learnt_BT + value_BT) * actions.first_BT

    def surrogate(self, policy: PolicyOutput, batch: Batch) -> LossOutput:
        """Clipped surrogate per macro action."""
        away_BT = (policy.logp_BT - batch.proximal_logp_BT) * batch.mask_BT
        ratio_BT = ratio_of(self._actions(batch).sums(away_BT))
        loss_BT, cut_BT = clipped_surrogate(ratio_BT, batch.credit_BT, self.clip, self.clip)
        loss = (loss_BT * batch.weight_BT).sum()
        return LossOutput(loss, clipped_BT=cut_BT * batch.mask_BT)

    def error(self, policy: PolicyOutput, batch: Batch) -> Tensor:
        """The clipped error of the macro actions' values. Each weighs as much as its tokens do, so
        that its value does too."""
        actions = self._actions(batch)
        if policy.value_BT is not None:
            value_BT = actions.values(policy.value_BT, self.macro_value)
            policy = replace(policy, value_BT=value_BT)
        batch = replace(batch, value_BT=actions.values(batch.value_BT, self.macro_value))
        weight_BT = actions.first_BT * actions.sums(batch.weight_BT)
        return (self.value_terms(policy, batch) * weight_BT).sum()

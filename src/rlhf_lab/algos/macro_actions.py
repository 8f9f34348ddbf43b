"""How the tokens of a response are divided into macro actions (arXiv:2410.02743, section 3.2), or
those of an episode into turns (arXiv:2402.19446)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from rlhf_lab.types.data import Batch

if TYPE_CHECKING:
    from torch import Tensor


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


# Of the published code's randomized_ngram_selection.
RANDOM_TOKENS = (1, 2, 3, 5, 10)
# Odd numbers that spread the bits of a row's tokens, and a modulus that keeps products in 64 bits.
SPREAD, STEP, MODULUS = 2654435761, 40503, 2**31 - 1


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

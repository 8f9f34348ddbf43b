"""Sampling one token per row by inverse CDF, in a few passes over the logits."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

# Probabilities are summed by blocks of so many tokens; only the block that is hit is looked into.
BLOCK = 256


def draw(
    logits_BV: Tensor, temperature: float, uniform_B: Tensor, is_greedy_B: Tensor
) -> tuple[Tensor, Tensor]:
    """One token a row by inverse CDF (the likeliest in greedy rows), and its log-prob at the
    temperature.

    Sums over the vocabulary run in float64, so that one of 100k tokens keeps its last ones, and a
    token of probability zero is never drawn.
    """
    scaled_BV = logits_BV.float() / temperature
    share_BV = torch.softmax(scaled_BV, dim=-1)
    size = share_BV.shape[1]
    blocks = -(-size // BLOCK)
    share_BNK = functional.pad(share_BV, (0, blocks * BLOCK - size)).view(-1, blocks, BLOCK)
    cumulative_BN = share_BNK.sum(dim=2).double().cumsum(dim=1)
    block_B1, rest_B1 = hit(cumulative_BN, uniform_B.unsqueeze(1) * cumulative_BN[:, -1:])
    within_BK = share_BNK.gather(1, block_B1.unsqueeze(2).expand(-1, 1, BLOCK)).squeeze(1)
    place_B1, _ = hit(within_BK.double().cumsum(dim=1), rest_B1)
    # Where all is NaN the token means nothing; its log-prob is NaN too.
    token_B1 = (block_B1 * BLOCK + place_B1).clamp(max=size - 1)
    if bool(is_greedy_B.any()):
        likeliest_B1 = scaled_BV.argmax(dim=1, keepdim=True)
        token_B1 = torch.where(is_greedy_B.unsqueeze(1), likeliest_B1, token_B1)
    return token_B1.squeeze(1), share_BV.gather(1, token_B1).log().squeeze(1)


def hit(cumulative_BN: Tensor, target_B1: Tensor) -> tuple[Tensor, Tensor]:
    """The first place whose cumulative sum exceeds the target, and what of the target lies in it.

    A target at the very end, as rounding makes it, hits the last place that has any mass.
    """
    end_B1 = cumulative_BN[:, -1:]
    target_B1 = torch.minimum(target_B1, torch.nextafter(end_B1, torch.zeros_like(end_B1)))
    place_B1 = torch.searchsorted(cumulative_BN, target_B1, right=True)
    place_B1 = place_B1.clamp(max=cumulative_BN.shape[1] - 1)
    before_B1 = cumulative_BN.gather(1, (place_B1 - 1).clamp(min=0))
    return place_B1, target_B1 - torch.where(place_B1 > 0, before_B1, 0.0)

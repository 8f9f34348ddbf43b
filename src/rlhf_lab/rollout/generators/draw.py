"""Sampling one token per row by inverse CDF, in a few passes over the logits."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

# Probabilities are summed by blocks of so many tokens; only the block that is hit is looked into.
BLOCK = 256
# One, as a whole number: a sum of probabilities that rounding makes more than one fits in 64 bits.
UNIT = 2.0**62


def draw(
    logits_BV: Tensor, temperature: float, uniform_B: Tensor, is_greedy_B: Tensor | None
) -> tuple[Tensor, Tensor]:
    """One token a row by inverse CDF (the likeliest in greedy rows), and its log-prob at the
    temperature. is_greedy_B: None where no row is greedy. The host waits for nothing.

    A token of probability zero is never drawn. torch has no deterministic running sum of floats on
    a GPU: there running sums are of whole numbers, and the tokens differ from a CPU's only where a
    random number lies within rounding of a border.
    """
    scaled_BV = logits_BV.float() / temperature
    share_BV = torch.softmax(scaled_BV, dim=-1)
    size = share_BV.shape[1]
    blocks = -(-size // BLOCK)
    share_BNK = functional.pad(share_BV, (0, blocks * BLOCK - size)).view(-1, blocks, BLOCK)
    # Where all is NaN the token means nothing; its log-prob is NaN too.
    is_counted = logits_BV.device.type != "cpu"
    token_B1 = drawn(share_BNK, uniform_B.unsqueeze(1), is_counted).clamp(max=size - 1)
    if is_greedy_B is not None:
        likeliest_B1 = scaled_BV.argmax(dim=1, keepdim=True)
        token_B1 = torch.where(is_greedy_B.unsqueeze(1), likeliest_B1, token_B1)
    return token_B1.squeeze(1), share_BV.gather(1, token_B1).log().squeeze(1)


def is_end(token_B: Tensor, end_E: Tensor) -> Tensor:
    """Which tokens are one of the end tokens, B. The host waits for nothing."""
    return (token_B.unsqueeze(1) == end_E).any(dim=1)


def drawn(share_BNK: Tensor, uniform_B1: Tensor, is_counted: bool) -> Tensor:
    """The tokens whose stretches of the line the random numbers hit, B1.

    share_BNK: probabilities in blocks. is_counted: whether running sums are of whole numbers.
    """
    cumulative_BN = running_sum(share_BNK.sum(dim=2), is_counted)
    target_B1 = (uniform_B1 * cumulative_BN[:, -1:]).to(cumulative_BN.dtype)
    block_B1, rest_B1 = hit(cumulative_BN, target_B1)
    within_BK = share_BNK.gather(1, block_B1.unsqueeze(2).expand(-1, 1, BLOCK)).squeeze(1)
    place_B1, _ = hit(running_sum(within_BK, is_counted), rest_B1)
    return block_B1 * BLOCK + place_B1


def running_sum(share_BN: Tensor, is_counted: bool) -> Tensor:
    """The sums of the first probabilities: in float64, so that one of 100k tokens keeps its last
    ones, or, counted, in units of 1 / UNIT, whose sums are exact in any order."""
    wide_BN = share_BN.double()
    return ((wide_BN * UNIT).long() if is_counted else wide_BN).cumsum(dim=1)


def hit(cumulative_BN: Tensor, target_B1: Tensor) -> tuple[Tensor, Tensor]:
    """The first place whose cumulative sum exceeds the target, and what of the target lies in it.

    A target at the very end, as rounding makes it, hits the last place that has any mass.
    """
    end_B1 = cumulative_BN[:, -1:]
    if end_B1.is_floating_point():
        most_B1 = torch.nextafter(end_B1, torch.zeros_like(end_B1))
    else:
        most_B1 = end_B1 - 1
    target_B1 = torch.minimum(target_B1, most_B1)
    place_B1 = torch.searchsorted(cumulative_BN, target_B1, right=True)
    place_B1 = place_B1.clamp(max=cumulative_BN.shape[1] - 1)
    before_B1 = cumulative_BN.gather(1, (place_B1 - 1).clamp(min=0))
    return place_B1, target_B1 - torch.where(place_B1 > 0, before_B1, 0)

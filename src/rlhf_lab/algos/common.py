"""Pieces that several algorithms share: sequence sums, baselines and KL estimators."""

from __future__ import annotations

import torch
from torch import Tensor

from rlhf_lab.off_policy import k3_terms
from rlhf_lab.types import Batch, UserError


def sequence_sum(value_BT: Tensor, batch: Batch) -> Tensor:
    """Sum over the response tokens of each row, shape B."""
    return (value_BT * batch.mask_BT).sum(dim=1)


def sequence_value(value_BT: Tensor, batch: Batch) -> Tensor:
    """The value that a whole row carries, shape B: the mean over its response tokens."""
    return sequence_sum(value_BT, batch) / batch.mask_BT.sum(dim=1).clamp(min=1)


def sequence_weight(batch: Batch) -> Tensor:
    """Each row's share of the update, shape B; sums to one over the update."""
    return batch.weight_BT.sum(dim=1)


def per_token(value_PG: Tensor, batch: Batch) -> Tensor:
    """Give every response token its row's value, shape BT."""
    return value_PG.reshape(-1, 1).to(batch.mask_BT.dtype) * batch.mask_BT


def keep_all(reward_PG: Tensor) -> Tensor:
    """Train on every row, shape B."""
    return torch.ones(reward_PG.numel(), dtype=torch.bool, device=reward_PG.device)


def best_and_worst(reward_PG: Tensor) -> tuple[Tensor, Tensor]:
    """One-hot of the best and of the worst sample of each group; the first of equals, PG each.

    Both are all zero in a group of equals: it prefers nothing.
    """
    differ_P1 = (reward_PG.amax(dim=1) > reward_PG.amin(dim=1)).unsqueeze(1)
    size = reward_PG.shape[1]
    best_PG = torch.nn.functional.one_hot(reward_PG.argmax(dim=1), size)
    worst_PG = torch.nn.functional.one_hot(reward_PG.argmin(dim=1), size)
    return best_PG * differ_P1, worst_PG * differ_P1


def leave_one_out(reward_PG: Tensor) -> Tensor:
    """Reward less the mean of the group's other samples (RLOO, arXiv:2402.14740, eq. 8), PG."""
    group_size = reward_PG.shape[1]
    others_PG = (reward_PG.sum(dim=1, keepdim=True) - reward_PG) / (group_size - 1)
    return reward_PG - others_PG


def k1(logp_BT: Tensor, other_logp_BT: Tensor) -> Tensor:
    """Per-token log p - log q; unbiased for KL(p || q) on samples of p."""
    return logp_BT - other_logp_BT


def k3(logp_BT: Tensor, other_logp_BT: Tensor) -> Tensor:
    """Per-token q/p - 1 - log(q/p): unbiased, never negative, less noise than k1."""
    return k3_terms(other_logp_BT - logp_BT)


def clipped_surrogate(
    ratio: Tensor, advantage: Tensor, low: float, high: float
) -> tuple[Tensor, Tensor]:
    """PPO's pessimistic objective to minimise, and where the clip cut the gradient."""
    clipped = ratio.clamp(1 - low, 1 + high)
    loss = -torch.minimum(ratio * advantage, clipped * advantage)
    return loss, ((clipped * advantage) < (ratio * advantage)).to(ratio.dtype)


def require_in(key: str, value: float, low: float, high: float) -> None:
    """Refuse an option outside [low, high]."""
    if not low <= value <= high:
        raise UserError(f"{key}={value} is out of range: choose from {low} to {high}")

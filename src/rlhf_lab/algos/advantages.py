"""Pieces that credits share: baselines, whitening, rewards per token and GAE."""

from __future__ import annotations

import torch
from torch import Tensor

from rlhf_lab.algos.common import k1, sequence_sum
from rlhf_lab.types.data import Batch


def best_and_worst(reward_PG: Tensor) -> tuple[Tensor, Tensor]:
    """One-hot of the best and of the worst sample of each group; the first of equals, PG each.

    Both are all zero in a group of equals: it prefers nothing.
    """
    differ_P1 = is_informative(reward_PG).unsqueeze(1)
    size = reward_PG.shape[1]
    best_PG = torch.nn.functional.one_hot(reward_PG.argmax(dim=1), size)
    worst_PG = torch.nn.functional.one_hot(reward_PG.argmin(dim=1), size)
    return best_PG * differ_P1, worst_PG * differ_P1


def is_informative(reward_PG: Tensor) -> Tensor:
    """Whether the samples of a group differ in reward, P."""
    return reward_PG.amax(dim=1) > reward_PG.amin(dim=1)


def less_kl(reward_PG: Tensor, kl_coef: float, batch: Batch) -> Tensor:
    """Reward less kl_coef nats of the sample's KL to the reference (k1 under the behaviour), PG."""
    kl_B = sequence_sum(k1(batch.behavior_logp_BT, batch.reference_logp_BT), batch)
    return reward_PG - kl_coef * kl_B.view_as(reward_PG)


def leave_one_out(reward_PG: Tensor) -> Tensor:
    """Reward less the mean of the group's other samples (arXiv:2402.14740, section 2.3), PG."""
    group_size = reward_PG.shape[1]
    others_PG = (reward_PG.sum(dim=1, keepdim=True) - reward_PG) / (group_size - 1)
    return reward_PG - others_PG


def centred(reward_PG: Tensor) -> Tensor:
    """Reward less the group's mean, PG."""
    return reward_PG - reward_PG.mean(dim=1, keepdim=True)


def standardised(reward_PG: Tensor, epsilon: float) -> Tensor:
    """Reward less the group's mean, over its standard deviation (unbiased) plus epsilon, PG."""
    return centred(reward_PG) / (reward_PG.std(dim=1, keepdim=True) + epsilon)


def whitened(value_BT: Tensor, mask_BT: Tensor, keep_mean: bool = False) -> Tensor:
    """Unit variance over the response tokens, and zero mean unless it is kept; pads are 0."""
    count = mask_BT.sum()
    mean = (value_BT * mask_BT).sum() / count
    variance = ((value_BT - mean).square() * mask_BT).sum() / count
    white_BT = (value_BT - mean) * torch.rsqrt(variance + 1e-8)
    return (white_BT + mean if keep_mean else white_BT) * mask_BT


def token_rewards(reward_PG: Tensor, kl_coef: float, batch: Batch) -> Tensor:
    """Each token costs kl_coef nats of its k1 to the reference; the last one gets the reward, BT.

    As in N+ (arXiv:2403.17031, the PPO set-up). What steps earned stands at their last tokens
    instead, and the last one gets the rest.
    """
    mask_BT = batch.mask_BT
    is_last_BT = mask_BT * (mask_BT.cumsum(dim=1) == mask_BT.sum(dim=1, keepdim=True))
    kl_BT = k1(batch.behavior_logp_BT, batch.reference_logp_BT) * mask_BT
    step_BT = batch.step_reward_BT
    rest_B1 = reward_PG.reshape(-1, 1).to(mask_BT.dtype) - step_BT.sum(dim=1, keepdim=True)
    return rest_B1 * is_last_BT + step_BT - kl_coef * kl_BT


def to_go(reward_BT: Tensor) -> Tensor:
    """Sum of a token's reward and all later ones, BT."""
    return reward_BT.flip(1).cumsum(dim=1).flip(1)


def gae(reward_BT: Tensor, value_BT: Tensor, mask_BT: Tensor, gamma: float, lam: float) -> Tensor:
    """Generalised advantage estimate (arXiv:1506.02438, eq. 16), BT.

    value_BT: value of the state before each token. Nothing follows the last one.
    """
    value_BT = value_BT * mask_BT
    advantage_BT = torch.zeros_like(reward_BT)
    following_B = torch.zeros_like(reward_BT[:, 0])
    for place in range(reward_BT.shape[1] - 1, -1, -1):
        is_end = place + 1 == reward_BT.shape[1]
        next_value_B = torch.zeros_like(following_B) if is_end else value_BT[:, place + 1]
        surprise_B = reward_BT[:, place] + gamma * next_value_B - value_BT[:, place]
        following_B = (surprise_B + gamma * lam * following_B) * mask_BT[:, place]
        advantage_BT[:, place] = following_B
    return advantage_BT

"""What credits share: baselines, standardising, GAE."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


class Deviation(StrEnum):
    """Which rewards' standard deviation divides a centred reward."""

    group = "group"
    batch = "batch"
    none = "none"


def best_and_worst(reward_PG: Tensor) -> tuple[Tensor, Tensor]:
    """One-hot of the best and of the worst sample of each group, PG each; the first one of ties.

    Both are zero for a group whose rewards are all equal: it prefers nothing.
    """
    import torch

    differ_P1 = is_informative(reward_PG).unsqueeze(1)
    size = reward_PG.shape[1]
    best_PG = torch.nn.functional.one_hot(reward_PG.argmax(dim=1), size)
    worst_PG = torch.nn.functional.one_hot(reward_PG.argmin(dim=1), size)
    return best_PG * differ_P1, worst_PG * differ_P1


def is_informative(reward_PG: Tensor) -> Tensor:
    """Whether the rewards of a group differ, P."""
    return reward_PG.amax(dim=1) > reward_PG.amin(dim=1)


def above(reward_PG: Tensor, baseline: Tensor) -> Tensor:
    """Reward - baseline, PG; exactly 0 in groups of equal rewards.

    baseline: a mean of a group's rewards. That of equal ones may differ from them in the last bit,
    which a small deviation, or AdamW, would scale to a whole step.
    """
    return (reward_PG - baseline).masked_fill(~is_informative(reward_PG).unsqueeze(1), 0.0)


def leave_one_out(reward_PG: Tensor) -> Tensor:
    """Reward - mean reward of the group's other samples (arXiv:2402.14740, section 2.3), PG."""
    group_size = reward_PG.shape[1]
    others_PG = (reward_PG.sum(dim=1, keepdim=True) - reward_PG) / (group_size - 1)
    return above(reward_PG, others_PG)


def centred(reward_PG: Tensor) -> Tensor:
    """Reward - group mean, PG."""
    return above(reward_PG, reward_PG.mean(dim=1, keepdim=True))


def centred_in_round(reward_PG: Tensor) -> Tensor:
    """Reward - mean of all rewards, PG."""
    return above(reward_PG.reshape(1, -1), reward_PG.mean()).view_as(reward_PG)


def prioritised(advantage_PG: Tensor, is_on: bool) -> Tensor:
    """Advantages times their ratio to the mean positive one, none negative; themselves if off."""
    positive = advantage_PG[advantage_PG > 0]
    if not is_on or not len(positive):
        return advantage_PG
    return advantage_PG * (advantage_PG / positive.mean()).clamp(min=0)


def standardised(reward_PG: Tensor, epsilon: float) -> Tensor:
    """(reward - group mean) / (group standard deviation, unbiased, + epsilon), PG."""
    return centred(reward_PG) / (reward_PG.std(dim=1, keepdim=True) + epsilon)


def scaled(reward_PG: Tensor, deviation: Deviation, epsilon: float) -> Tensor:
    """Reward less the group mean, over the chosen unbiased standard deviation plus epsilon, PG."""
    if deviation is Deviation.group:
        return standardised(reward_PG, epsilon)
    if deviation is Deviation.batch:
        return centred(reward_PG) / (reward_PG.std() + epsilon)
    return centred(reward_PG)


def whitened(value_BT: Tensor, mask_BT: Tensor, keep_mean: bool = False) -> Tensor:
    """Values with unit variance over all response tokens, and zero mean unless `keep_mean`. Values
    that are all equal are exactly 0, or as they are."""
    import torch

    count = mask_BT.sum()
    mean = (value_BT * mask_BT).sum() / count
    variance = ((value_BT - mean).square() * mask_BT).sum() / count
    response_1N = value_BT[mask_BT > 0].unsqueeze(0)
    if not bool(is_informative(response_1N)):
        return value_BT * mask_BT * keep_mean
    white_BT = (value_BT - mean) * torch.rsqrt(variance + 1e-8)
    return (white_BT + mean if keep_mean else white_BT) * mask_BT


def symlog(value: Tensor) -> Tensor:
    """sign(x) log(1 + |x|) (arXiv:2301.04104)."""
    return value.sign() * value.abs().log1p()


def symexp(value: Tensor) -> Tensor:
    """The inverse of `symlog`: sign(x) (exp(|x|) - 1)."""
    return value.sign() * value.abs().expm1()


def to_go(reward_BT: Tensor) -> Tensor:
    """Return of each token without discount: its reward and all later ones, BT."""
    return reward_BT.flip(1).cumsum(dim=1).flip(1)


def lam_of_length(mask_BT: Tensor, alpha: float) -> Tensor:
    """1 - 1 / (alpha * length), at least 0, of each response (arXiv:2504.05118), B."""
    return (1 - 1 / (alpha * mask_BT.sum(dim=1).clamp(min=1))).clamp(min=0)


def gae(
    reward_BT: Tensor, value_BT: Tensor, mask_BT: Tensor, gamma: float, lam: float | Tensor
) -> Tensor:
    """Generalised advantage estimation (arXiv:1506.02438, eq. 16), BT.

    value_BT: value of the state before each token. The value after the last token is 0.
    lam: of all responses, or of each one, B.
    """
    import torch

    value_BT = value_BT * mask_BT
    advantage_BT = torch.zeros_like(reward_BT)
    following_B = torch.zeros_like(reward_BT[:, 0])
    for t in range(reward_BT.shape[1] - 1, -1, -1):
        is_end = t + 1 == reward_BT.shape[1]
        next_value_B = torch.zeros_like(following_B) if is_end else value_BT[:, t + 1]
        delta_B = reward_BT[:, t] + gamma * next_value_B - value_BT[:, t]
        following_B = (delta_B + gamma * lam * following_B) * mask_BT[:, t]
        advantage_BT[:, t] = following_B
    return advantage_BT

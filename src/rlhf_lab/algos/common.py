"""Pieces that losses share: sums over responses, ratios, KL estimators. Credits: advantages.py."""

from __future__ import annotations

import torch
from torch import Tensor

from rlhf_lab.algos.off_policy import k3_terms
from rlhf_lab.types.data import Batch, LossOutput, PolicyOutput


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


def grouped(value_B: Tensor, batch: Batch) -> Tensor:
    """A row for each group, PG. Every group of the batch must have equally many rows."""
    num_groups = 1 + int((batch.group_B.diff() != 0).sum())
    return value_B.view(num_groups, -1)


def keep_all(reward_PG: Tensor) -> Tensor:
    """Train on every row, shape B."""
    return torch.ones(reward_PG.numel(), dtype=torch.bool, device=reward_PG.device)


def ratio_to_proximal(policy: PolicyOutput, batch: Batch) -> Tensor:
    """Policy over proximal policy per token, BT; exactly one where the two agree, pads included."""
    return (policy.logp_BT - batch.proximal_logp_BT).exp()


def log_ratio_of_responses(policy: PolicyOutput, batch: Batch) -> Tensor:
    """Log of policy over proximal policy of whole responses, B."""
    return sequence_sum(policy.logp_BT - batch.proximal_logp_BT, batch)


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


def token_surrogate(policy: PolicyOutput, batch: Batch, low: float, high: float) -> LossOutput:
    """PPO's clipped objective per token (arXiv:1707.06347, eq. 7) under the token weights."""
    surrogate_BT, clipped_BT = clipped_surrogate(
        ratio_to_proximal(policy, batch), batch.credit_BT, low, high
    )
    return LossOutput((surrogate_BT * batch.weight_BT).sum(), clipped_BT=clipped_BT)


def response_surrogate(ratio_B: Tensor, batch: Batch, low: float, high: float) -> LossOutput:
    """The same with one ratio and one credit per response."""
    loss_B, clipped_B = clipped_surrogate(
        ratio_B, sequence_value(batch.credit_BT, batch), low, high
    )
    loss = (loss_B * sequence_weight(batch)).sum()
    return LossOutput(loss, clipped_BT=clipped_B.unsqueeze(1) * batch.mask_BT)


def kl_penalty(policy: PolicyOutput, batch: Batch, coef: float) -> Tensor:
    """coef times KL(policy || reference) per token (k3), a scalar."""
    return coef * (k3(policy.logp_BT, batch.reference_logp_BT) * batch.weight_BT).sum()


def credited_likelihood(policy: PolicyOutput, batch: Batch) -> LossOutput:
    """REINFORCE: minus the log-probs of whole responses, each token times its credit."""
    credited_B = sequence_sum(policy.logp_BT * batch.credit_BT, batch)
    return LossOutput(-(credited_B * sequence_weight(batch)).sum())


def value_error(policy: PolicyOutput, batch: Batch, clip: float) -> Tensor:
    """Half the squared error of the values, BT; the worse of it and of the value that moved at most
    `clip` from what it was before the round (N+, arXiv:2403.17031; 0 does not clip)."""
    if policy.value_BT is None:
        raise ValueError("a value model is needed, and the engine has none")
    error_BT = (policy.value_BT - batch.target_BT).square()
    if clip:
        moved_BT = (policy.value_BT - batch.value_BT).clamp(-clip, clip)
        clipped_BT = (batch.value_BT + moved_BT - batch.target_BT).square()
        error_BT = torch.maximum(error_BT, clipped_BT)
    return 0.5 * error_BT * batch.mask_BT

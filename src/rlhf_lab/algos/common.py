"""What losses share: sums over responses, ratios, clipping, KL estimators, value errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from rlhf_lab.algos.off_policy import k3_terms, ratio_of
from rlhf_lab.types.data import Batch, LossOutput, PolicyOutput

if TYPE_CHECKING:
    from torch import Tensor

# Terms per token whose mean estimates KL(p || q), from log-probs under p and q of samples of p.
KLTerms = Callable[["Tensor", "Tensor"], "Tensor"]


def sequence_sum(value_BT: Tensor, batch: Batch) -> Tensor:
    """Sum over the response tokens of each row, shape B."""
    return (value_BT * batch.mask_BT).sum(dim=1)


def sequence_value(value_BT: Tensor, batch: Batch) -> Tensor:
    """Mean over the response tokens of each row, shape B."""
    return sequence_sum(value_BT, batch) / batch.mask_BT.sum(dim=1).clamp(min=1)


def sequence_weight(batch: Batch) -> Tensor:
    """Each row's share of the update, shape B; sums to one over the update."""
    return batch.weight_BT.sum(dim=1)


def per_token(value_PG: Tensor, batch: Batch) -> Tensor:
    """The value of each sample at all of its response tokens, shape BT."""
    return value_PG.reshape(-1, 1).to(batch.mask_BT.dtype) * batch.mask_BT


def grouped(value_B: Tensor, batch: Batch) -> Tensor:
    """Values of rows as PG. Every group of the batch must have the same number of rows."""
    num_groups = 1 + int((batch.group_B.diff() != 0).sum())
    return value_B.view(num_groups, -1)


def first_tokens(batch: Batch) -> Tensor:
    """1 at the first response token of each row, BT."""
    import torch

    first_BT = torch.zeros_like(batch.mask_BT)
    first_BT[:, 0] = batch.mask_BT[:, 0]
    return first_BT


def keep_all(reward_PG: Tensor) -> Tensor:
    """Train on every row, shape B."""
    import torch

    return torch.ones(reward_PG.numel(), dtype=torch.bool, device=reward_PG.device)


def ratio_to_proximal(policy: PolicyOutput, batch: Batch) -> Tensor:
    """pi / pi_proximal of each token, BT; exactly one where both agree and on padding."""
    return ratio_of(policy.logp_BT - batch.proximal_logp_BT)


def log_ratio_of_responses(policy: PolicyOutput, batch: Batch) -> Tensor:
    """log pi / pi_proximal of whole responses, B."""
    return sequence_sum(policy.logp_BT - batch.proximal_logp_BT, batch)


def k1(logp_BT: Tensor, other_logp_BT: Tensor) -> Tensor:
    """log p - log q per token: unbiased for KL(p || q) on samples of p, high variance."""
    return logp_BT - other_logp_BT


def k2(logp_BT: Tensor, other_logp_BT: Tensor) -> Tensor:
    """(log p - log q)^2 / 2 per token: biased as a value; its mean gradient on samples of p is that
    of KL(p || q)."""
    return 0.5 * (logp_BT - other_logp_BT).square()


def k3(logp_BT: Tensor, other_logp_BT: Tensor) -> Tensor:
    """q/p - 1 - log(q/p) per token: unbiased on samples of p, never negative, less variance."""
    return k3_terms(other_logp_BT - logp_BT)


def clipped_surrogate(
    ratio: Tensor, advantage: Tensor, low: float, high: float
) -> tuple[Tensor, Tensor]:
    """-min(r A, clip(r, 1 - low, 1 + high) A) (arXiv:1707.06347, eq. 7), and 1 where the clip
    removes the gradient."""
    import torch

    clipped = ratio.clamp(1 - low, 1 + high)
    loss = -torch.minimum(ratio * advantage, clipped * advantage)
    return loss, ((clipped * advantage) < (ratio * advantage)).to(ratio.dtype)


def token_surrogate(policy: PolicyOutput, batch: Batch, low: float, high: float) -> LossOutput:
    """The clipped surrogate with a ratio and an advantage per token."""
    surrogate_BT, clipped_BT = clipped_surrogate(
        ratio_to_proximal(policy, batch), batch.credit_BT, low, high
    )
    return LossOutput((surrogate_BT * batch.weight_BT).sum(), clipped_BT=clipped_BT)


def response_surrogate(ratio_B: Tensor, batch: Batch, low: float, high: float) -> LossOutput:
    """The clipped surrogate with one ratio and one advantage per response."""
    loss_B, clipped_B = clipped_surrogate(
        ratio_B, sequence_value(batch.credit_BT, batch), low, high
    )
    loss = (loss_B * sequence_weight(batch)).sum()
    return LossOutput(loss, clipped_BT=clipped_B.unsqueeze(1) * batch.mask_BT)


def kl_penalty(policy: PolicyOutput, batch: Batch, coef: float, terms: KLTerms = k3) -> Tensor:
    """coef * KL(policy || reference), by an estimator per token under the token weights; a
    scalar."""
    return coef * (terms(policy.logp_BT, batch.reference_logp_BT) * batch.weight_BT).sum()


def credited_likelihood(policy: PolicyOutput, batch: Batch) -> LossOutput:
    """REINFORCE: -sum_t A_t log pi(y_t), a weighted mean over responses."""
    credited_B = sequence_sum(policy.logp_BT * batch.credit_BT, batch)
    return LossOutput(-(credited_B * sequence_weight(batch)).sum())


def value_error(policy: PolicyOutput, batch: Batch, clip: float) -> Tensor:
    """Half the squared error of the values, BT, clipped as in arXiv:2403.17031 (N+): the larger of
    the error and of that of the value moved at most `clip` from before the round. 0: no clip."""
    import torch

    if policy.value_BT is None:
        raise ValueError("a value model is needed, and the engine has none")
    error_BT = (policy.value_BT - batch.target_BT).square()
    if clip:
        moved_BT = (policy.value_BT - batch.value_BT).clamp(-clip, clip)
        clipped_BT = (batch.value_BT + moved_BT - batch.target_BT).square()
        error_BT = torch.maximum(error_BT, clipped_BT)
    return 0.5 * error_BT * batch.mask_BT


def prompt_value_error(policy: PolicyOutput, batch: Batch) -> Tensor:
    """Half the squared error of the values before first tokens, a weighted mean over rows."""
    error_BT = value_error(policy, batch, 0.0) * first_tokens(batch)
    return (error_BT.sum(dim=1) * sequence_weight(batch)).sum()

"""Pieces that corrections share: what each may be combined with, and log-ratios of responses."""

from __future__ import annotations

from torch import Tensor

from rlhf_lab.types.data import Batch, Objective
from rlhf_lab.types.errors import UserError

EVERY = frozenset(Objective)
# A pair or a best of K is no draw from the behaviour policy: no ratio to it can correct the loss.
CREDITED = EVERY - {Objective.comparison}
# A factor per token would be averaged away where the loss takes one credit per response.
PER_TOKEN = CREDITED - {Objective.sequence_ratio}
# Anchoring means another denominator, so there must be a ratio.
RATIOS = frozenset({Objective.token_ratio, Objective.sequence_ratio})


def response_sum(log_ratio_BT: Tensor, batch: Batch) -> Tensor:
    """Log-ratio of whole responses, B1."""
    return (log_ratio_BT * batch.mask_BT).sum(dim=1, keepdim=True)


def response_mean(log_ratio_BT: Tensor, batch: Batch) -> Tensor:
    """Mean log-ratio of a response's tokens, B1."""
    return response_sum(log_ratio_BT, batch) / batch.mask_BT.sum(dim=1, keepdim=True)


def within(value: Tensor, low: float, high: float) -> Tensor:
    """Whether each value lies in the interval, its ends included."""
    return (value >= low) & (value <= high)


def require_interval(low: float, high: float) -> None:
    """Refuse an interval of ratios that is empty."""
    if high <= low:
        raise UserError(
            f"correction.high={high} with correction.low={low}: no ratio is between them; choose "
            f"above {low:g}"
        )

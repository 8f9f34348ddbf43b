"""Credit over the range of returns, as in DreamerV3 (arXiv:2301.04104)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from rlhf_lab.types.data import Batch, Credit

LOW, HIGH = 0.05, 0.95


@dataclass(frozen=True)
class ReturnRange:
    """A moving average of the range of returns, from their 5th to their 95th percentile. It begins
    with the range of the first round. decay: share of the average that a round keeps."""

    decay: float
    average: float | None = None

    def after(self, credit: Credit, reward_PG: Tensor, batch: Batch) -> ReturnRange:
        """With a round's returns: the targets of the values, or rewards where there are none."""
        per_token = credit.target_BT if credit.return_BT is None else credit.return_BT
        returns = reward_PG.flatten() if per_token is None else per_token[batch.mask_BT > 0]
        low, high = torch.quantile(returns.double(), torch.tensor([LOW, HIGH]).double()).tolist()
        if self.average is None:
            return replace(self, average=high - low)
        return replace(self, average=self.decay * self.average + (1 - self.decay) * (high - low))

    def scaled(self, credit: Credit) -> Credit:
        """Credit divided by the average, but by no less than 1: small returns are not enlarged.
        Targets stay as they are."""
        assert self.average is not None, "a round's returns come before its credit is scaled"
        return replace(credit, value_BT=credit.value_BT / max(1.0, self.average))

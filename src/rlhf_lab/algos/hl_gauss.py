"""Values by classification: HL-Gauss (arXiv:2403.03950, section 3.1; arXiv:1806.04613)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rlhf_lab.types.data import Batch, Bins, PolicyOutput

if TYPE_CHECKING:
    from torch import Tensor


def histogram(target_BT: Tensor, bins: Bins, spread: float) -> Tensor:
    """Share of each bin in a normal distribution around the target, cut to the range of the bins,
    BTH. spread: its standard deviation over the width of a bin. Targets beyond the range count as
    its ends."""
    import torch

    edge_H = torch.linspace(bins.least, bins.most, bins.number + 1, device=target_BT.device)
    width = (bins.most - bins.least) / bins.number
    away = edge_H - target_BT.clamp(bins.least, bins.most).unsqueeze(-1)
    below = torch.erf(away / (math.sqrt(2) * spread * width))
    return below.diff(dim=-1) / (below[..., -1:] - below[..., :1])


def histogram_error(policy: PolicyOutput, batch: Batch, bins: Bins, spread: float) -> Tensor:
    """Cross-entropy of the targets' histograms and the value model's, BT; 0 on padding."""
    if policy.value_logits_BTH is None:
        raise ValueError("a value model with bins is needed, and the engine has none")
    share_BTH = histogram(batch.target_BT, bins, spread)
    logp_BTH = policy.value_logits_BTH.log_softmax(dim=-1)
    return -(share_BTH * logp_BTH).sum(dim=-1) * batch.mask_BT

"""DPPO: tokens are masked by total variation in place of a ratio (arXiv:2602.04879)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from rlhf_lab.algos.corrections.common import PER_TOKEN, CorrectionOptions
from rlhf_lab.algos.off_policy import LARGEST_LOG_RATIO, bounded, ratio_of
from rlhf_lab.types import limits
from rlhf_lab.types.data import Batch, Objective

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class DPPO(CorrectionOptions):
    """Tokens weigh their ratio; those whose probability has moved too far the way that their credit
    pushes it are left out."""

    name: str = limits.name("dppo")
    delta: float = limits.share(
        0.15,
        about=(
            "Probability that a token may have gained, with positive credit, or lost: the total "
            "variation between it and all other tokens."
        ),
        source="arXiv:2602.04879, Binary-TV",
    )
    cap: float = limits.number(
        20.0,
        above=0,
        most=1e9,
        about="Largest weight of a token.",
        source="the implementation of TRL; that of the authors has 10",
    )
    corrects: ClassVar[frozenset[Objective]] = PER_TOKEN

    def weight(self, log_ratio_BT: Tensor, batch: Batch) -> Tensor:
        """The token's ratio, cut at the cap, or zero."""
        import torch

        gain_BT = torch.where(
            log_ratio_BT > LARGEST_LOG_RATIO,
            (batch.behavior_logp_BT + log_ratio_BT).exp(),
            batch.behavior_logp_BT.exp() * bounded(log_ratio_BT).expm1(),
        )
        pushed_BT = torch.where(batch.credit_BT > 0, gain_BT, -gain_BT)
        return ratio_of(log_ratio_BT).clamp(max=self.cap).masked_fill(pushed_BT > self.delta, 0.0)

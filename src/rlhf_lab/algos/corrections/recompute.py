"""Old log-probs by the present policy: staleness is not corrected, it is not seen any more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from rlhf_lab.algos.corrections.common import RATIOS
from rlhf_lab.types import limits
from rlhf_lab.types.data import Batch, Objective


@dataclass(frozen=True)
class Recompute:
    """What the published code of arXiv:2410.18252 does for PPO and RLOO."""

    name: str = limits.name("recompute")
    corrects: ClassVar[frozenset[Objective]] = RATIOS
    anchors_at_start: ClassVar[bool] = True
    warning: ClassVar[str] = (
        "correction=recompute takes ratios against the policy at each round's start: stale samples "
        "count as on-policy, and with N = T = 1 every ratio is one and no clip ever acts; "
        "correction=decoupled or truncated_is also weigh where the samples come from"
    )

    def weight(self, log_ratio_BT: Tensor, batch: Batch) -> Tensor:
        """One everywhere: what lies between behaviour and the round's start is left alone."""
        return torch.ones_like(log_ratio_BT)

    def step(self, log_ratio_B: Tensor) -> float:
        return 1.0

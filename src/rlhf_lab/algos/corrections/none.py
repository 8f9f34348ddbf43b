"""No correction: ratios, where the loss takes any, are against the behaviour policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from rlhf_lab.algos.corrections.common import EVERY
from rlhf_lab.types import limits
from rlhf_lab.types.data import Batch, Objective


@dataclass(frozen=True)
class NoCorrection:
    """PPO's own ratio then spans staleness and drift together, and its clip bounds both."""

    name: str = limits.name("none")
    corrects: ClassVar[frozenset[Objective]] = EVERY
    anchors_at_start: ClassVar[bool] = False
    warning: ClassVar[str] = ""

    def weight(self, log_ratio_BT: Tensor, batch: Batch) -> Tensor:
        """One everywhere."""
        return torch.ones_like(log_ratio_BT)

    def step(self, log_ratio_B: Tensor) -> float:
        return 1.0

"""Truncated importance sampling per token: min(ratio, cap) (as V-trace, arXiv:1802.01561)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from rlhf_lab.corrections.common import PER_TOKEN, require_above
from rlhf_lab.types import Batch, Objective


@dataclass(frozen=True)
class TruncatedIS:
    """cap: largest weight of a token."""

    name: str = "truncated_is"
    cap: float = 2.0
    corrects: ClassVar[frozenset[Objective]] = PER_TOKEN
    anchors_at_start: ClassVar[bool] = True
    warning: ClassVar[str] = ""

    def __post_init__(self) -> None:
        require_above("correction.cap", self.cap, 0.0)

    def weight(self, log_ratio_BT: Tensor, batch: Batch) -> Tensor:
        """The token's ratio, cut at the cap."""
        return log_ratio_BT.exp().clamp(max=self.cap)

    def step(self, log_ratio_B: Tensor) -> float:
        return 1.0

"""Truncated importance sampling per token: min(ratio, cap) (as V-trace, arXiv:1802.01561)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from rlhf_lab.algos.corrections.common import PER_TOKEN, CorrectionOptions
from rlhf_lab.algos.off_policy import ratio_of
from rlhf_lab.types import limits
from rlhf_lab.types.data import Batch, Objective

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class TruncatedIS(CorrectionOptions):
    """Each token of the loss weighs its ratio of proximal to behaviour policy, up to a cap."""

    name: str = limits.name("truncated_is")
    cap: float = limits.number(2.0, above=0, most=1e9, about="Largest weight of a token.")
    corrects: ClassVar[frozenset[Objective]] = PER_TOKEN

    def weight(self, log_ratio_BT: Tensor, batch: Batch) -> Tensor:
        """The token's ratio, cut at the cap."""
        return ratio_of(log_ratio_BT).clamp(max=self.cap)

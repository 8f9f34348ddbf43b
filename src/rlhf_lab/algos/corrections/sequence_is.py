"""Truncated importance sampling of whole responses: min(product of token ratios, cap)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from rlhf_lab.algos.corrections.common import CREDITED, CorrectionOptions, response_sum
from rlhf_lab.algos.off_policy import ratio_of
from rlhf_lab.types import limits
from rlhf_lab.types.data import Batch, Objective

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class SequenceIS(CorrectionOptions):
    """Each response weighs its ratio of proximal to behaviour policy, up to a cap."""

    name: str = limits.name("sequence_is")
    cap: float = limits.number(
        5.0,
        above=0,
        most=1e9,
        about="Largest weight of a response; a higher cap has less bias and more variance.",
    )
    corrects: ClassVar[frozenset[Objective]] = CREDITED

    def weight(self, log_ratio_BT: Tensor, batch: Batch) -> Tensor:
        """The response's ratio, cut at the cap, at each of its tokens."""
        weight_B1 = ratio_of(response_sum(log_ratio_BT, batch)).clamp(max=self.cap)
        return weight_B1.expand_as(log_ratio_BT)

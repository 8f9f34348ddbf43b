"""Corrections by importance weights that are cut, and by their effective sample size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from rlhf_lab.algos.corrections.common import (
    CREDITED,
    EVERY,
    PER_TOKEN,
    CorrectionOptions,
    response_sum,
)
from rlhf_lab.algos.off_policy import ratio_of
from rlhf_lab.types import limits
from rlhf_lab.types.data import Batch, Objective

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class TruncatedIS(CorrectionOptions):
    """Truncated importance sampling per token: min(ratio, cap) (as V-trace, arXiv:1802.01561).

    Each token of the loss weighs its ratio of proximal to behaviour policy, up to a cap."""

    name: str = limits.name("truncated_is")
    cap: float = limits.number(2.0, above=0, max=1e9, about="Largest weight of a token.")
    corrects: ClassVar[frozenset[Objective]] = PER_TOKEN

    def weight(self, log_ratio_BT: Tensor, batch: Batch) -> Tensor:
        """The token's ratio, cut at the cap."""
        return ratio_of(log_ratio_BT).clamp(max=self.cap)


@dataclass(frozen=True)
class SequenceIS(CorrectionOptions):
    """Truncated importance sampling of whole responses: min(product of token ratios, cap).

    Each response weighs its ratio of proximal to behaviour policy, up to a cap."""

    name: str = limits.name("sequence_is")
    cap: float = limits.number(
        5.0,
        above=0,
        max=1e9,
        about="Largest weight of a response; a higher cap has less bias and more variance.",
    )
    corrects: ClassVar[frozenset[Objective]] = CREDITED

    def weight(self, log_ratio_BT: Tensor, batch: Batch) -> Tensor:
        """The response's ratio, cut at the cap, at each of its tokens."""
        weight_B1 = ratio_of(response_sum(log_ratio_BT, batch)).clamp(max=self.cap)
        return weight_B1.expand_as(log_ratio_BT)


@dataclass(frozen=True)
class ESSScaled(CorrectionOptions):
    """The step shrinks with the effective sample size of the update's responses (arXiv:2602.17616).

    The learning rate of an update shrinks with the effective sample size of its responses."""

    name: str = limits.name("ess_scaled")
    power: float = limits.number(
        0.5,
        above=0,
        max=100,
        about=(
            "The learning rate is multiplied by (effective / actual responses) to this power; a "
            "half suits AdamW, whose steps do not shrink with the gradient."
        ),
        source="arXiv:2602.17616",
    )
    corrects: ClassVar[frozenset[Objective]] = EVERY
    anchors_at_start: ClassVar[bool] = False

    def step(self, log_ratio_B: Tensor) -> float:
        """(sum w)^2 / (n sum w^2) of the responses' ratios, to the power."""
        weight_B = (log_ratio_B - log_ratio_B.max()).exp().double()
        share = weight_B.sum().square() / (len(weight_B) * weight_B.square().sum())
        return float(share.pow(self.power))

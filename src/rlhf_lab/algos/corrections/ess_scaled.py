"""The step shrinks with the effective sample size of the update's responses (arXiv:2602.17616)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from rlhf_lab.algos.corrections.common import EVERY, CorrectionOptions
from rlhf_lab.types import limits
from rlhf_lab.types.data import Objective

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class ESSScaled(CorrectionOptions):
    """The learning rate of an update shrinks with the effective sample size of its responses."""

    name: str = limits.name("ess_scaled")
    power: float = limits.number(
        0.5,
        above=0,
        most=100,
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

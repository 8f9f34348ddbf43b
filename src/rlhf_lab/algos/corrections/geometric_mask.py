"""Geometric mask: only responses whose mean token ratio is close to one are trained on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from rlhf_lab.algos.corrections.common import (
    CREDITED,
    CorrectionOptions,
    require_interval,
    response_mean,
    within,
)
from rlhf_lab.algos.off_policy import ratio_of
from rlhf_lab.types import limits
from rlhf_lab.types.data import Batch, Objective

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class GeometricMask(CorrectionOptions):
    """Responses whose geometric mean of token ratios is outside an interval are left out."""

    name: str = limits.name("geometric_mask")
    low: float = limits.number(
        0.99,
        least=0,
        most=1e9,
        about="Smallest geometric mean of a response's token ratios that is trained on.",
    )
    high: float = limits.number(
        1.01,
        above=0,
        most=1e9,
        about="Largest geometric mean of a response's token ratios that is trained on.",
    )
    corrects: ClassVar[frozenset[Objective]] = CREDITED

    def __post_init__(self) -> None:
        super().__post_init__()
        require_interval(self.low, self.high)

    def weight(self, log_ratio_BT: Tensor, batch: Batch) -> Tensor:
        """One or zero for the whole response."""
        mean_B1 = ratio_of(response_mean(log_ratio_BT, batch))
        keep_B1 = within(mean_B1, self.low, self.high)
        return keep_B1.to(log_ratio_BT.dtype).expand_as(log_ratio_BT)

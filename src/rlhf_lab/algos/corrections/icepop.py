"""IcePop: a token weighs its ratio within an interval, and nothing outside (arXiv:2510.18855)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from rlhf_lab.algos.corrections.common import (
    PER_TOKEN,
    CorrectionOptions,
    require_interval,
    within,
)
from rlhf_lab.algos.off_policy import ratio_of
from rlhf_lab.types import limits
from rlhf_lab.types.data import Batch, Objective

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class IcePop(CorrectionOptions):
    """Tokens weigh their ratio of proximal to behaviour policy; outside an interval, nothing."""

    name: str = limits.name("icepop")
    low: float = limits.number(
        0.5, least=0, most=1e9, about="Smallest token ratio that is trained on."
    )
    high: float = limits.number(
        5.0, above=0, most=1e9, about="Largest token ratio that is trained on."
    )
    corrects: ClassVar[frozenset[Objective]] = PER_TOKEN

    def __post_init__(self) -> None:
        super().__post_init__()
        require_interval(self.low, self.high)

    def weight(self, log_ratio_BT: Tensor, batch: Batch) -> Tensor:
        """The token's ratio, or zero."""
        ratio_BT = ratio_of(log_ratio_BT)
        return ratio_BT * within(ratio_BT, self.low, self.high)

"""Off-policy sequence mask: stale responses of negative credit are left out (arXiv:2512.02556)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from rlhf_lab.algos.corrections.common import CREDITED, CorrectionOptions, response_mean
from rlhf_lab.types import limits
from rlhf_lab.types.data import Batch, Objective

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class OPSM(CorrectionOptions):
    """Responses of negative credit that the policy has become unlikely to write are left out; good
    ones stay."""

    name: str = limits.name("opsm")
    delta: float = limits.number(
        0.05,
        above=0,
        most=1e6,
        about=(
            "Nats per token by which a response may have become less likely than when it was "
            "written."
        ),
        source="arXiv:2512.02556",
    )
    corrects: ClassVar[frozenset[Objective]] = CREDITED
    anchors_at_start: ClassVar[bool] = False

    def weight(self, log_ratio_BT: Tensor, batch: Batch) -> Tensor:
        """Zero on negative credit in responses that have become unlikely, one elsewhere."""
        is_far_B1 = -response_mean(log_ratio_BT, batch) > self.delta
        return 1.0 - (is_far_B1 & (batch.credit_BT < 0)).to(log_ratio_BT.dtype)

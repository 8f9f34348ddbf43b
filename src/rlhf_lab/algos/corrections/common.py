"""What corrections share: the objectives they apply to, defaults, log-ratios of responses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from rlhf_lab.types import limits
from rlhf_lab.types.data import Batch, CorrectionNeeds, Objective
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.protocols import Correction

if TYPE_CHECKING:
    from torch import Tensor

EVERY = frozenset(Objective)
# A pair or a best of K is not a draw from the behaviour policy: no ratio corrects such a loss.
CREDITED = EVERY - {Objective.comparison}
# A loss with one credit per response would average factors of single tokens.
PER_TOKEN = CREDITED - {Objective.sequence_ratio}
# Losses with a ratio, whose denominator anchoring replaces.
RATIOS = frozenset({Objective.token_ratio, Objective.sequence_ratio})


class CorrectionOptions(limits.OptionGroup, key="correction"):
    """Ratios anchored at the round's start, credit and learning rate as they are. Corrections add
    `name` and `corrects` (see types.protocols.Correction)."""

    warning: ClassVar[str] = ""

    @property
    def anchors_at_start(self) -> bool:
        return True

    @property
    def needs(self) -> CorrectionNeeds:
        return CorrectionNeeds()

    def weight(self, log_ratio_BT: Tensor, batch: Batch) -> Tensor:
        """One everywhere: credit is not changed."""
        import torch

        return torch.ones_like(log_ratio_BT)

    def step(self, log_ratio_B: Tensor) -> float:
        """One: the learning rate is not changed."""
        return 1.0

    def fitted(self, log_ratio_BT: Tensor, batch: Batch) -> Correction:
        raise UserError(f"{type(self).__name__} declares whole_update=True: write its `fitted`")

    def proximal(self, log_ratio_BT: Tensor, batch: Batch) -> Tensor:
        raise UserError(f"{type(self).__name__} declares proximal=True: write its `proximal`")

    def terms(self, log_ratio_BT: Tensor, batch: Batch) -> Mapping[str, Tensor]:
        return {}


def response_sum(log_ratio_BT: Tensor, batch: Batch) -> Tensor:
    """Log-ratio of whole responses, B1."""
    return (log_ratio_BT * batch.mask_BT).sum(dim=1, keepdim=True)


def response_mean(log_ratio_BT: Tensor, batch: Batch) -> Tensor:
    """Mean log-ratio of a response's tokens, B1."""
    return response_sum(log_ratio_BT, batch) / batch.mask_BT.sum(dim=1, keepdim=True)


def within(value: Tensor, low: float, high: float) -> Tensor:
    """Whether each value lies in the interval, its ends included."""
    return (value >= low) & (value <= high)


def require_interval(low: float, high: float) -> None:
    """Refuse an interval of ratios that is empty."""
    if high <= low:
        raise UserError(
            f"correction.high={high} with correction.low={low}: no ratio is between them; choose "
            f"above {low:g}"
        )

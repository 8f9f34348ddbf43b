"""M2PO: outliers are left out until the log-ratios' second moment is small (arXiv:2510.01161)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from rlhf_lab.algos.corrections.common import CorrectionOptions
from rlhf_lab.algos.off_policy import ratio_of
from rlhf_lab.types import limits
from rlhf_lab.types.data import Batch, CorrectionNeeds, Objective

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class SquareBound(CorrectionOptions):
    """Tokens whose squared log-ratio is at most `bound` weigh their ratio, the others nothing."""

    name: str
    corrects: frozenset[Objective]
    bound: float

    def weight(self, log_ratio_BT: Tensor, batch: Batch) -> Tensor:
        """The token's ratio, or zero."""
        return ratio_of(log_ratio_BT).masked_fill(log_ratio_BT.square() > self.bound, 0.0)


@dataclass(frozen=True)
class M2PO(CorrectionOptions):
    """Tokens weigh their ratio of proximal to behaviour policy; those of the largest log-ratios are
    left out until the mean square of the update's other log-ratios is small."""

    name: str = limits.name("m2po")
    moment: float = limits.number(
        0.04,
        above=0,
        most=1e6,
        about="Largest mean square of the log-ratios of an update's tokens, in nats squared.",
        source="arXiv:2510.01161",
    )
    corrects: ClassVar[frozenset[Objective]] = frozenset({Objective.token_ratio})
    needs: ClassVar[CorrectionNeeds] = CorrectionNeeds(whole_update=True)

    def fitted(self, log_ratio_BT: Tensor, batch: Batch) -> SquareBound:
        """The bound that these rows need, all those of an update."""
        square_N = log_ratio_BT[batch.mask_BT > 0].square()
        return SquareBound(self.name, self.corrects, largest_kept(square_N, self.moment))

    def weight(self, log_ratio_BT: Tensor, batch: Batch) -> Tensor:
        """The weights where these rows are a whole update."""
        return self.fitted(log_ratio_BT, batch).weight(log_ratio_BT, batch)


def largest_kept(square_N: Tensor, moment: float) -> float:
    """The largest square such that the mean of those up to it is at most `moment`; -1 if there is
    none. Equal squares are kept or left out together."""
    import torch

    sorted_N = square_N.double().sort().values
    count_N = torch.arange(1, len(sorted_N) + 1, device=sorted_N.device)
    fits_N = sorted_N.cumsum(dim=0) / count_N <= moment
    fits_N[:-1] &= sorted_N[1:] > sorted_N[:-1]
    return float(sorted_N[fits_N][-1]) if bool(fits_N.any()) else -1.0

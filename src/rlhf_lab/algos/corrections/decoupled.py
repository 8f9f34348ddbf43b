"""Decoupled: behaviour, proximal and policy apart (arXiv:2110.00641; AReaL, arXiv:2505.24298)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from rlhf_lab.algos.corrections.common import RATIOS, CorrectionDefaults
from rlhf_lab.types import limits
from rlhf_lab.types.data import Batch, Objective

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Decoupled(CorrectionDefaults, limits.Limited, key="correction"):
    """The loss clips policy over proximal policy (that of the round's start), and each token
    weighs proximal over behaviour policy."""

    name: str = limits.name("decoupled")
    cap: float = limits.number(
        0.0,
        above=0,
        most=1e9,
        also={0: "for none"},
        about=(
            "Largest weight of a token; 0 is no bound, as in the paper. truncated_is is the same "
            "with a bound that acts."
        ),
        source="arXiv:2110.00641",
    )
    corrects: ClassVar[frozenset[Objective]] = RATIOS - {Objective.sequence_ratio}

    def weight(self, log_ratio_BT: Tensor, batch: Batch) -> Tensor:
        """The token's ratio of proximal to behaviour."""
        return log_ratio_BT.exp().clamp(max=self.cap or math.inf)

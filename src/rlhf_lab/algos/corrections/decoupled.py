"""Decoupled: behaviour, proximal and policy apart (arXiv:2110.00641; AReaL, arXiv:2505.24298)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from rlhf_lab.algos.corrections.common import (
    RATIOS,
    CorrectionOptions,
    response_mean,
    response_sum,
)
from rlhf_lab.algos.off_policy import ratio_of
from rlhf_lab.types import limits
from rlhf_lab.types.data import Batch, Objective

if TYPE_CHECKING:
    from torch import Tensor


class Level(StrEnum):
    """What has one weight: a token, a response by the product of its token ratios, or a response by
    their geometric mean."""

    token = "token"
    response = "response"
    mean = "mean"


@dataclass(frozen=True)
class Decoupled(CorrectionOptions):
    """The loss clips policy over proximal policy (that of the round's start), and each token or
    response weighs proximal over behaviour policy."""

    name: str = limits.name("decoupled")
    cap: float = limits.number(
        0.0,
        above=0,
        most=1e9,
        also={0: "for none"},
        about=(
            "Largest weight; 0 is no bound, as in the paper. truncated_is is the same with a bound "
            "that acts."
        ),
        source="arXiv:2110.00641",
    )
    level: Level = limits.option(
        Level.token,
        about=(
            "What has one weight: a token, or a response, by the product of its token ratios "
            "(response) or by their geometric mean (mean). A loss with one ratio for many tokens "
            "needs one for the response: that of gspo is a mean."
        ),
        source="arXiv:2110.00641, eq. 10; mean: the ratio of arXiv:2507.18071",
    )

    @property
    def corrects(self) -> frozenset[Objective]:
        """A weight per token fits ratios per token, one per response every ratio."""
        return RATIOS - ({Objective.sequence_ratio} if self.level is Level.token else set())

    def weight(self, log_ratio_BT: Tensor, batch: Batch) -> Tensor:
        """Ratio of proximal to behaviour policy of the token or of its response, at each token."""
        if self.level is Level.response:
            log_ratio_BT = response_sum(log_ratio_BT, batch).expand_as(log_ratio_BT)
        elif self.level is Level.mean:
            log_ratio_BT = response_mean(log_ratio_BT, batch).expand_as(log_ratio_BT)
        return ratio_of(log_ratio_BT).clamp(max=self.cap or math.inf)

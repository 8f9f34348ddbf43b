"""A-3PO: the proximal policy is interpolated by the age of tokens, not read (arXiv:2512.06547)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from rlhf_lab.algos.corrections.common import CorrectionOptions
from rlhf_lab.algos.off_policy import ratio_of
from rlhf_lab.types import limits
from rlhf_lab.types.data import Batch, CorrectionNeeds, Objective

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class A3PO(CorrectionOptions):
    """As decoupled, without a forward pass: the proximal log-prob of a token that is d rounds old
    is 1 / d of the behaviour's and the rest of the policy's."""

    name: str = limits.name("a3po")
    cap: float = limits.number(
        0.0,
        above=0,
        most=1e9,
        also={0: "for none"},
        about="Largest weight of a token; 0 is no bound.",
        source="arXiv:2512.06547 has none",
    )
    corrects: ClassVar[frozenset[Objective]] = frozenset({Objective.token_ratio})
    anchors_at_start: ClassVar[bool] = False
    needs: ClassVar[CorrectionNeeds] = CorrectionNeeds(lag=True, proximal=True)

    def proximal(self, log_ratio_BT: Tensor, batch: Batch) -> Tensor:
        """Between the log-probs of behaviour and policy; the behaviour's up to one round of age."""
        return batch.behavior_logp_BT + policy_share(batch.lag_BT) * log_ratio_BT

    def weight(self, log_ratio_BT: Tensor, batch: Batch) -> Tensor:
        """Ratio of the interpolated policy to the behaviour."""
        ratio_BT = ratio_of(policy_share(batch.lag_BT) * log_ratio_BT)
        return ratio_BT.clamp(max=self.cap or math.inf)


def policy_share(lag_BT: Tensor) -> Tensor:
    """The policy's share in the interpolation: 1 - 1 / d, and 0 where d is 0."""
    return 1 - 1 / lag_BT.clamp(min=1)

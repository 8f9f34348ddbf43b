"""ESTR: tokens are left out by log-ratios in units of the entropy that they were drawn with
(arXiv:2607.22186)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from rlhf_lab.algos.corrections.common import CorrectionOptions
from rlhf_lab.types import limits
from rlhf_lab.types.data import Batch, CorrectionNeeds, Objective

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class ESTR(CorrectionOptions):
    """Tokens whose squared log-ratio of policy to behaviour is large for the entropy of the
    distribution that they were drawn from are left out: where many tokens were possible, ratios may
    be larger."""

    name: str = limits.name("estr")
    bound: float = limits.number(
        1.0,
        above=0,
        most=1e6,
        about="Largest squared log-ratio over entropy (plus correction.floor), in nats.",
    )
    floor: float = limits.number(
        0.01,
        above=0,
        most=1e6,
        about="Nats that are added to the entropy, for tokens that were all but certain.",
        source="arXiv:2607.22186",
    )
    corrects: ClassVar[frozenset[Objective]] = frozenset({Objective.token_ratio})
    anchors_at_start: ClassVar[bool] = False
    needs: ClassVar[CorrectionNeeds] = CorrectionNeeds(entropy=True)

    def weight(self, log_ratio_BT: Tensor, batch: Batch) -> Tensor:
        """One, or zero."""
        score_BT = log_ratio_BT.square() / (batch.entropy_BT + self.floor)
        return (score_BT <= self.bound).to(log_ratio_BT.dtype)

"""Split: engine mismatch and staleness are two ratios, each with its bound (arXiv:2605.12070)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from rlhf_lab.algos.corrections.common import (
    PER_TOKEN,
    CorrectionOptions,
    require_interval,
    within,
)
from rlhf_lab.algos.off_policy import ratio_of
from rlhf_lab.types import limits
from rlhf_lab.types.data import Batch, CorrectionNeeds, Objective

if TYPE_CHECKING:
    from torch import Tensor


class Staleness(StrEnum):
    """What bounds staleness: a cap on a token's weight, or the clip of the loss's own ratio, which
    is then taken against the version that wrote the token."""

    cap = "cap"
    clip = "clip"


@dataclass(frozen=True)
class Split(CorrectionOptions):
    """Tokens weigh the mismatch between trainer and generator at equal weights, which must be in an
    interval, times their staleness, which is capped or left to the loss's clip."""

    name: str = limits.name("split")
    low: float = limits.number(
        0.5,
        least=0,
        most=1e9,
        about="Smallest mismatch ratio that is trained on: trainer over generator, same weights.",
    )
    high: float = limits.number(
        5.0, above=0, most=1e9, about="Largest mismatch ratio that is trained on."
    )
    cap: float = limits.number(
        2.0,
        above=0,
        most=1e9,
        about="Largest staleness ratio of a token, with correction.staleness=cap.",
    )
    staleness: Staleness = limits.option(
        Staleness.cap,
        about=(
            "What bounds staleness: a cap on the ratio of the policy at the round's start to the "
            "writer (cap), or the clip of the loss's ratio of policy to writer (clip)."
        ),
        source="clip: arXiv:2605.12070; cap: as truncated_is",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require_interval(self.low, self.high)

    @property
    def anchors_at_start(self) -> bool:
        """The loss's ratio begins at the writer where its clip bounds staleness."""
        return self.staleness is Staleness.cap

    @property
    def corrects(self) -> frozenset[Objective]:
        """A clip bounds staleness only where the loss takes ratios per token."""
        return PER_TOKEN if self.anchors_at_start else frozenset({Objective.token_ratio})

    @property
    def needs(self) -> CorrectionNeeds:
        return CorrectionNeeds(writer_logp=True, proximal=self.staleness is Staleness.clip)

    def proximal(self, log_ratio_BT: Tensor, batch: Batch) -> Tensor:
        """Those of the version that generated the token, where the clip bounds staleness."""
        return batch.writer_logp_BT

    def weight(self, log_ratio_BT: Tensor, batch: Batch) -> Tensor:
        """Mismatch within the interval, times capped staleness unless the clip bounds it."""
        terms = self.terms(log_ratio_BT, batch)
        factor_BT = terms["mismatch"].masked_fill(terms["mismatch_bounded"] > 0, 0.0)
        if self.staleness is Staleness.clip:
            return factor_BT
        return factor_BT * terms["staleness"].clamp(max=self.cap)

    def terms(self, log_ratio_BT: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Both ratios, BT, and 1 where a bound of this correction acts on them."""
        log_mismatch_BT = (batch.writer_logp_BT - batch.behavior_logp_BT) * batch.mask_BT
        mismatch_BT = ratio_of(log_mismatch_BT)
        staleness_BT = ratio_of(log_ratio_BT - log_mismatch_BT)
        is_capped_BT = (staleness_BT > self.cap) & self.anchors_at_start
        return {
            "mismatch": mismatch_BT,
            "mismatch_bounded": (~within(mismatch_BT, self.low, self.high)).to(mismatch_BT.dtype),
            "staleness": staleness_BT,
            "staleness_bounded": is_capped_BT.to(mismatch_BT.dtype),
        }

"""Corrections that decide which policy the loss's ratios are against."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar

from rlhf_lab.algos.corrections.common import (
    EVERY,
    PER_TOKEN,
    RATIOS,
    CorrectionOptions,
    require_interval,
    response_mean,
    response_sum,
    within,
)
from rlhf_lab.algos.off_policy import ratio_of
from rlhf_lab.types import limits
from rlhf_lab.types.data import Batch, CorrectionNeeds, Objective

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class NoCorrection(CorrectionOptions):
    """No correction: ratios, where the loss takes any, are against the behaviour policy.

    PPO's own ratio then spans staleness and drift together, and its clip bounds both."""

    name: str = limits.name("none")
    corrects: ClassVar[frozenset[Objective]] = EVERY
    anchors_at_start: ClassVar[bool] = False


@dataclass(frozen=True)
class Recompute(CorrectionOptions):
    """Recompute old log-probs with the policy, which hides staleness instead of correcting it.

    What the published code of arXiv:2410.18252 does for PPO and RLOO."""

    name: str = limits.name("recompute")
    corrects: ClassVar[frozenset[Objective]] = RATIOS
    warning: ClassVar[str] = (
        "correction=recompute takes ratios against the policy at each round's start: stale samples "
        "count as on-policy, and with N = T = 1 every ratio is one and no clip ever acts; "
        "correction=decoupled or truncated_is also weigh where the samples come from"
    )


class Level(StrEnum):
    """What has one weight: a token, a response by the product of its token ratios, or a response by
    their geometric mean."""

    token = "token"
    response = "response"
    mean = "mean"


@dataclass(frozen=True)
class Decoupled(CorrectionOptions):
    """Decoupled: behaviour, proximal and policy apart (arXiv:2110.00641; AReaL, arXiv:2505.24298).

    The loss clips policy over proximal policy (that of the round's start), and each token or
    response weighs proximal over behaviour policy."""

    name: str = limits.name("decoupled")
    cap: float = limits.number(
        0.0,
        above=0,
        max=1e9,
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


@dataclass(frozen=True)
class A3PO(CorrectionOptions):
    """A-3PO: the proximal policy is interpolated by the age of tokens, not read (arXiv:2512.06547).

    As decoupled, without a forward pass: the proximal log-prob of a token that is d rounds old
    is 1 / d of the behaviour's and the rest of the policy's."""

    name: str = limits.name("a3po")
    cap: float = limits.number(
        0.0,
        above=0,
        max=1e9,
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


class Staleness(StrEnum):
    """What bounds staleness: a cap on a token's weight, or the clip of the loss's own ratio, which
    is then taken against the version that wrote the token."""

    cap = "cap"
    clip = "clip"


@dataclass(frozen=True)
class Split(CorrectionOptions):
    """Split: engine mismatch and staleness are two ratios, each with its bound (arXiv:2605.12070).

    Tokens weigh the mismatch between trainer and generator at equal weights, which must be in an
    interval, times their staleness, which is capped or left to the loss's clip."""

    name: str = limits.name("split")
    low: float = limits.number(
        0.5,
        min=0,
        max=1e9,
        about="Smallest mismatch ratio that is trained on: trainer over generator, same weights.",
    )
    high: float = limits.number(
        5.0, above=0, max=1e9, about="Largest mismatch ratio that is trained on."
    )
    cap: float = limits.number(
        2.0,
        above=0,
        max=1e9,
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

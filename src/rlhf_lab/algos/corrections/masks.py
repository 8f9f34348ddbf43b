"""Corrections that leave tokens or responses out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from rlhf_lab.algos.corrections.common import (
    CREDITED,
    PER_TOKEN,
    CorrectionOptions,
    require_interval,
    response_mean,
    within,
)
from rlhf_lab.algos.off_policy import LARGEST_LOG_RATIO, bounded, ratio_of
from rlhf_lab.types import limits
from rlhf_lab.types.data import Batch, CorrectionNeeds, Objective

if TYPE_CHECKING:
    from torch import Tensor

# Probabilities are kept this far from 0 and 1, where a binary KL is infinite.
TINY = 1e-6


@dataclass(frozen=True)
class IcePop(CorrectionOptions):
    """IcePop: a token weighs its ratio within an interval, and nothing outside (arXiv:2510.18855).

    Tokens weigh their ratio of proximal to behaviour policy; outside an interval, nothing."""

    name: str = limits.name("icepop")
    low: float = limits.number(
        0.5, min=0, max=1e9, about="Smallest token ratio that is trained on."
    )
    high: float = limits.number(
        5.0, above=0, max=1e9, about="Largest token ratio that is trained on."
    )
    corrects: ClassVar[frozenset[Objective]] = PER_TOKEN

    def __post_init__(self) -> None:
        super().__post_init__()
        require_interval(self.low, self.high)

    def weight(self, log_ratio_BT: Tensor, batch: Batch) -> Tensor:
        """The token's ratio, or zero."""
        ratio_BT = ratio_of(log_ratio_BT)
        return ratio_BT * within(ratio_BT, self.low, self.high)


@dataclass(frozen=True)
class KPop(CorrectionOptions):
    """KPop: a token weighs its ratio where two binary KLs are small (ringtech.notion.site/kpop).

    Tokens weigh their ratio of proximal to behaviour policy; those on whose probability the two
    disagree, nothing. Rare tokens may differ by large ratios, likely ones by small ones."""

    name: str = limits.name("kpop")
    divergence: float = limits.number(
        0.1,
        above=0,
        max=1e6,
        about=(
            "Largest KL in nats, in each direction, between the two policies' probabilities of the "
            "token against all others."
        ),
        source="https://ringtech.notion.site/kpop",
    )
    corrects: ClassVar[frozenset[Objective]] = PER_TOKEN

    def weight(self, log_ratio_BT: Tensor, batch: Batch) -> Tensor:
        """The token's ratio, or zero."""
        behavior_BT = batch.behavior_logp_BT.exp().clamp(TINY, 1 - TINY)
        trainer_BT = (batch.behavior_logp_BT + log_ratio_BT).exp().clamp(TINY, 1 - TINY)
        one_BT, other_BT = binary_kl(trainer_BT, behavior_BT), binary_kl(behavior_BT, trainer_BT)
        is_far_BT = one_BT.maximum(other_BT) > self.divergence
        return ratio_of(log_ratio_BT).masked_fill(is_far_BT, 0.0)


def binary_kl(one: Tensor, other: Tensor) -> Tensor:
    """The KL in nats from one probability of an event to another."""
    return one * (one / other).log() + (1 - one) * ((1 - one) / (1 - other)).log()


@dataclass(frozen=True)
class DPPO(CorrectionOptions):
    """DPPO: tokens are masked by total variation in place of a ratio (arXiv:2602.04879).

    Tokens weigh their ratio; those whose probability has moved too far the way that their credit
    pushes it are left out."""

    name: str = limits.name("dppo")
    delta: float = limits.share(
        0.15,
        about=(
            "Probability that a token may have gained, with positive credit, or lost: the total "
            "variation between it and all other tokens."
        ),
        source="arXiv:2602.04879, Binary-TV",
    )
    cap: float = limits.number(
        20.0,
        above=0,
        max=1e9,
        about="Largest weight of a token.",
        source="the implementation of TRL; that of the authors has 10",
    )
    corrects: ClassVar[frozenset[Objective]] = PER_TOKEN

    def weight(self, log_ratio_BT: Tensor, batch: Batch) -> Tensor:
        """The token's ratio, cut at the cap, or zero."""
        import torch

        gain_BT = torch.where(
            log_ratio_BT > LARGEST_LOG_RATIO,
            (batch.behavior_logp_BT + log_ratio_BT).exp(),
            batch.behavior_logp_BT.exp() * bounded(log_ratio_BT).expm1(),
        )
        pushed_BT = torch.where(batch.credit_BT > 0, gain_BT, -gain_BT)
        return ratio_of(log_ratio_BT).clamp(max=self.cap).masked_fill(pushed_BT > self.delta, 0.0)


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
    """M2PO: outliers are left out until the log-ratios' second moment is small (arXiv:2510.01161).

    Tokens weigh their ratio of proximal to behaviour policy; those of the largest log-ratios are
    left out until the mean square of the update's other log-ratios is small."""

    name: str = limits.name("m2po")
    moment: float = limits.number(
        0.04,
        above=0,
        max=1e6,
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


@dataclass(frozen=True)
class GeometricMask(CorrectionOptions):
    """Geometric mask: only responses whose mean token ratio is close to one are trained on.

    Responses whose geometric mean of token ratios is outside an interval are left out."""

    name: str = limits.name("geometric_mask")
    low: float = limits.number(
        0.99,
        min=0,
        max=1e9,
        about="Smallest geometric mean of a response's token ratios that is trained on.",
    )
    high: float = limits.number(
        1.01,
        above=0,
        max=1e9,
        about="Largest geometric mean of a response's token ratios that is trained on.",
    )
    corrects: ClassVar[frozenset[Objective]] = CREDITED

    def __post_init__(self) -> None:
        super().__post_init__()
        require_interval(self.low, self.high)

    def weight(self, log_ratio_BT: Tensor, batch: Batch) -> Tensor:
        """One or zero for the whole response."""
        mean_B1 = ratio_of(response_mean(log_ratio_BT, batch))
        keep_B1 = within(mean_B1, self.low, self.high)
        return keep_B1.to(log_ratio_BT.dtype).expand_as(log_ratio_BT)


@dataclass(frozen=True)
class ESTR(CorrectionOptions):
    """ESTR: tokens are left out by log-ratios in units of the entropy that they were drawn with
    (arXiv:2607.22186).

    Tokens whose squared log-ratio of policy to behaviour is large for the entropy of the
    distribution that they were drawn from are left out: where many tokens were possible, ratios may
    be larger."""

    name: str = limits.name("estr")
    bound: float = limits.number(
        1.0,
        above=0,
        max=1e6,
        about="Largest squared log-ratio over entropy (plus correction.floor), in nats.",
    )
    floor: float = limits.number(
        0.01,
        above=0,
        max=1e6,
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


@dataclass(frozen=True)
class OPSM(CorrectionOptions):
    """Off-policy sequence mask: stale responses of negative credit are left out (arXiv:2512.02556).

    Responses of negative credit that the policy has become unlikely to write are left out; good
    ones stay."""

    name: str = limits.name("opsm")
    delta: float = limits.number(
        0.05,
        above=0,
        max=1e6,
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

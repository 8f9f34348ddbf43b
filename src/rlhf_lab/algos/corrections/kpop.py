"""KPop: a token weighs its ratio where two binary KLs are small (ringtech.notion.site/kpop)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from rlhf_lab.algos.corrections.common import PER_TOKEN, CorrectionOptions
from rlhf_lab.algos.off_policy import ratio_of
from rlhf_lab.types import limits
from rlhf_lab.types.data import Batch, Objective

if TYPE_CHECKING:
    from torch import Tensor

# Probabilities are kept this far from 0 and 1, where a binary KL is infinite.
TINY = 1e-6


@dataclass(frozen=True)
class KPop(CorrectionOptions):
    """Tokens weigh their ratio of proximal to behaviour policy; those on whose probability the two
    disagree, nothing. Rare tokens may differ by large ratios, likely ones by small ones."""

    name: str = limits.name("kpop")
    divergence: float = limits.number(
        0.1,
        above=0,
        most=1e6,
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

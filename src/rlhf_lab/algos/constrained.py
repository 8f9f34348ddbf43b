"""What CGPO's optimizers share (arXiv:2409.20370): violated constraints, and a bound on KL.

A reward of 0 or less means that a sample violates a constraint; that of others is calibrated,
between 0 and 1. `reward=cgpo` and rewards of right and wrong are of this kind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlhf_lab.algos.common import k1, sequence_sum
from rlhf_lab.types import limits
from rlhf_lab.types.data import Batch

if TYPE_CHECKING:
    from torch import Tensor


def kl_max() -> float:
    """The option `kl_max`."""
    return limits.number(
        10.0,
        above=0,
        most=1e6,
        about=(
            "KL to the reference, in nats a response, from which on a sample earns nothing. The "
            "paper sets it for each task."
        ),
        source="arXiv:2409.20370, KL_max",
    )


def kl_of(reward_PG: Tensor, batch: Batch) -> Tensor:
    """log(behaviour / reference) of each sample, nats, in the shape of the rewards."""
    kl_B = sequence_sum(k1(batch.behavior_logp_BT, batch.reference_logp_BT), batch)
    return kl_B.view_as(reward_PG)

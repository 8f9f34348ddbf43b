"""Recompute old log-probs with the policy, which hides staleness instead of correcting it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rlhf_lab.algos.corrections.common import RATIOS, CorrectionOptions
from rlhf_lab.types import limits
from rlhf_lab.types.data import Objective


@dataclass(frozen=True)
class Recompute(CorrectionOptions):
    """What the published code of arXiv:2410.18252 does for PPO and RLOO."""

    name: str = limits.name("recompute")
    corrects: ClassVar[frozenset[Objective]] = RATIOS
    warning: ClassVar[str] = (
        "correction=recompute takes ratios against the policy at each round's start: stale samples "
        "count as on-policy, and with N = T = 1 every ratio is one and no clip ever acts; "
        "correction=decoupled or truncated_is also weigh where the samples come from"
    )

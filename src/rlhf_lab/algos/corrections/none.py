"""No correction: ratios, where the loss takes any, are against the behaviour policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rlhf_lab.algos.corrections.common import EVERY, CorrectionOptions
from rlhf_lab.types import limits
from rlhf_lab.types.data import Objective


@dataclass(frozen=True)
class NoCorrection(CorrectionOptions):
    """PPO's own ratio then spans staleness and drift together, and its clip bounds both."""

    name: str = limits.name("none")
    corrects: ClassVar[frozenset[Objective]] = EVERY
    anchors_at_start: ClassVar[bool] = False

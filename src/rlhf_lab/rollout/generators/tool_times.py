"""How long observations take, in virtual seconds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

from rlhf_lab.types.randomness import stable_hash, uniforms

# The quantile of 0 is not finite; a uniform number may be 0.
SMALLEST = 2.0**-54


@dataclass(frozen=True)
class ToolTimes:
    """Log-normal times, each a function of the episode's seed and the turn alone.

    median: virtual seconds, 0 for none. sigma: standard deviation of their logarithm. deadline:
    virtual seconds for all observations of an episode, 0 for any.
    """

    median: float = 0.0
    sigma: float = 0.0
    deadline: float = 0.0

    def seconds(self, seed: int, turn: int) -> float:
        """Virtual seconds until the observation behind a turn is there. seed: of the episode's
        environment. turn: from 1."""
        draw = float(uniforms(stable_hash(seed, "tool"), turn, 0, 1)[0])
        return self.median * math.exp(self.sigma * NormalDist().inv_cdf(max(draw, SMALLEST)))


AT_ONCE = ToolTimes()

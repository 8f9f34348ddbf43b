"""Config node `episodes`: how long environments may take, in real and in virtual seconds."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from statistics import NormalDist

from rlhf_lab.types import limits
from rlhf_lab.types.errors import UserError
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
        """Virtual seconds until the observation after a turn is there. seed: of the episode's
        environment. turn: from 1."""
        draw = float(uniforms(stable_hash(seed, "tool"), turn, 0, 1)[0])
        return self.median * math.exp(self.sigma * NormalDist().inv_cdf(max(draw, SMALLEST)))


AT_ONCE = ToolTimes()


class WhenLate(StrEnum):
    """What becomes of a step of an environment that takes longer than it may."""

    stop = "stop"
    truncate = "truncate"


@dataclass(frozen=True)
class EpisodeOptions(limits.OptionGroup, key="episodes"):
    """Time in the episodes of a task with an environment.

    Real seconds guard a run against an environment that hangs. Virtual seconds are part of the
    experiment: drawn from the seed, the same on every machine and in every mode; mode=virtual lets
    them pass on its clock.
    """

    step_seconds: float = limits.pause(
        300.0,
        about=(
            "Real seconds that a call of an environment (reset or step) may take; 0 is without "
            "limit but that of mode.hang_seconds, which a generator process has."
        ),
    )
    episode_seconds: float = limits.pause(
        0.0,
        about=(
            "Real seconds that all calls of the environment of an episode may take together; 0 is "
            "without limit."
        ),
    )
    when_late: WhenLate = limits.option(
        WhenLate.stop,
        about=(
            "A step that takes longer than either: the run stops with its row and turn (stop), or "
            "the episode ends there and is counted (truncate), which no other machine need repeat."
        ),
    )
    steps_at_once: int = limits.count(
        1,
        max=1024,
        about=(
            "Environments that are called at the same time, in threads. More than 1 is for tools "
            "that wait; those that compute, or share state, need 1."
        ),
    )
    decode_ahead: int = limits.count(
        0,
        min=0,
        max=1024,
        about=(
            "Decoding steps for which the other episodes of a chunk go on while an environment is "
            "called, behind which its observation is read; 0 waits for the environment at once. "
            "With vLLM every value above 0 reads an observation once it is there."
        ),
    )
    tool_seconds: float = limits.pause(
        0.0,
        about=(
            "Median virtual seconds until an observation is there, drawn for each from the seed; 0 "
            "is at once."
        ),
    )
    tool_sigma: float = limits.number(
        0.0,
        min=0,
        max=5,
        about=(
            "Standard deviation of the logarithm of these seconds, which are log-normal: 0 makes "
            "all equal, 1 gives a tail, 2 a heavy one."
        ),
    )
    tool_deadline: float = limits.pause(
        0.0,
        about=(
            "Virtual seconds that all observations of an episode may take: one that takes longer "
            "is not read, and the episode ends. 0 is without limit."
        ),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("tool_sigma", "tool_deadline"):
            if getattr(self, name) and not self.tool_seconds:
                raise UserError(
                    f"episodes.{name}={getattr(self, name):g} with episodes.tool_seconds=0: "
                    "observations take no time; pass episodes.tool_seconds, or "
                    f"episodes.{name}=0"
                )
        if self.when_late is WhenLate.truncate and not self.is_limited:
            raise UserError(
                "episodes.when_late=truncate with episodes.step_seconds=0 and "
                "episodes.episode_seconds=0: no step is ever late; pass episodes.step_seconds or "
                "episodes.episode_seconds"
            )

    @property
    def is_limited(self) -> bool:
        """Whether calls of environments may take only so many real seconds."""
        return bool(self.step_seconds or self.episode_seconds)

    @property
    def tool_times(self) -> ToolTimes:
        """Virtual seconds of observations."""
        return ToolTimes(self.tool_seconds, self.tool_sigma, self.tool_deadline)

    @property
    def without_tools(self) -> EpisodeOptions:
        """The same with observations that take no virtual time: evaluation measures the policy."""
        return replace(self, tool_seconds=0.0, tool_sigma=0.0, tool_deadline=0.0)

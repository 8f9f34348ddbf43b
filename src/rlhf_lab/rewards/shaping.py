"""Shaping of a reward before training: bounds (arXiv:2410.15115), the end token, and length
(arXiv:2501.12599, arXiv:2503.14476)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from rlhf_lab.types import limits
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.reward import Reward
from rlhf_lab.types.samples import Finish, Group, Sample


class MissingEos(StrEnum):
    """What becomes of the reward of a sample without the end token."""

    keep = "keep"
    fixed = "fixed"
    penalty = "penalty"


@dataclass(frozen=True)
class ShapingOptions(limits.OptionGroup, key="shaping"):
    """Changes to the training reward, in the order of these options; the judge's scores stay as
    they are."""

    clip: bool = limits.option(
        False,
        about="Whether the reward becomes min(reward - eta, 0).",
        source="arXiv:2410.15115, section 4",
    )
    eta: float = limits.score(
        0.0, about="Threshold of shaping.clip.", source="arXiv:2410.15115, section 4"
    )
    symlog: bool = limits.option(
        False,
        about="Whether the reward becomes sign(reward) * log(1 + |reward|).",
        source="DreamerV3, arXiv:2301.04104",
    )
    bound: float = limits.coefficient(
        0.0, about="Rewards are cut to -bound to bound; 0 is no bound."
    )
    missing_eos: MissingEos = limits.option(
        MissingEos.keep,
        about=(
            "Reward of a sample without the end token: as it is, replaced by missing_eos_value "
            "(fixed), or reduced by it (penalty)."
        ),
    )
    missing_eos_value: float = limits.score(
        0.0, about="The value for missing_eos=fixed or penalty."
    )
    length_weight: float = limits.coefficient(
        0.0,
        about="Weight of a reward for being shorter than others of the group; 0 is none.",
        source="Kimi k1.5, arXiv:2501.12599, section 2.3.3",
    )
    correct_from: float = limits.score(
        1.0,
        about=(
            "Least reward, before shaping, of a response that counts as correct for the length "
            "reward."
        ),
    )
    overlong_buffer: int = limits.tokens(
        0,
        min=0,
        about=(
            "Tokens below the response limit over which a penalty rises from 0 to "
            "overlong_penalty; 0 is none."
        ),
        source="DAPO, arXiv:2503.14476, eq. 13",
    )
    overlong_penalty: float = limits.coefficient(
        1.0,
        about="Reward subtracted at the response limit, with overlong_buffer.",
        source="DAPO, arXiv:2503.14476, eq. 13",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.eta and not self.clip:
            raise UserError(f"shaping.eta={self.eta} without a clip: pass shaping.clip=true too")
        if self.missing_eos is MissingEos.penalty and self.missing_eos_value <= 0:
            raise UserError(
                f"shaping.missing_eos_value={self.missing_eos_value} with missing_eos=penalty: it "
                "is subtracted; choose a number above 0"
            )

    @property
    def first(self) -> str:
        """The first setting that shapes anything, as key=value; '' if none does."""
        default = ShapingOptions()
        for key in ("clip", "symlog", "bound", "missing_eos", "length_weight", "overlong_buffer"):
            if getattr(self, key) != getattr(default, key):
                return f"{key}={getattr(self, key)}"
        return ""

    @property
    def is_on(self) -> bool:
        return bool(self.first)


class ShapedScorer(Reward):
    """A reward whose scores are shaped. Groups without a score stay without."""

    def __init__(self, inner: Reward, options: ShapingOptions, response_limit: int) -> None:
        self._inner = inner
        self._options = options
        self._limit = response_limit

    def score(self, groups: Sequence[Group]) -> list[tuple[float, ...]]:
        return [group.rewards for group in self.scored(groups)]

    def scored(self, groups: Sequence[Group]) -> list[Group]:
        """The same with what steps earned, which shaping leaves as it is: the end pays for it."""
        return [
            group.scored(self._row(group, group.rewards), group.step_rewards)
            for group in self._inner.scored(groups)
        ]

    def drain(self) -> Mapping[str, int]:
        return self._inner.drain()

    def _row(self, group: Group, rewards: tuple[float, ...]) -> tuple[float, ...]:
        if not rewards:
            return ()
        options = self._options
        lengths = [len(sample.tokens) for sample in group.samples]
        correct = [reward >= options.correct_from for reward in rewards]
        terms = zip(
            (self._bounded(reward) for reward in rewards),
            group.samples,
            length_rewards(lengths, correct),
            strict=True,
        )
        return tuple(
            self._ended(reward, sample)
            + options.length_weight * length
            - options.overlong_penalty
            * overlong(len(sample.tokens), options.overlong_buffer, self._limit)
            for reward, sample, length in terms
        )

    def _bounded(self, reward: float) -> float:
        options = self._options
        if options.clip:
            reward = min(reward - options.eta, 0.0)
        if options.symlog:
            reward = math.copysign(math.log1p(abs(reward)), reward)
        if options.bound:
            reward = min(max(reward, -options.bound), options.bound)
        return reward

    def _ended(self, reward: float, sample: Sample) -> float:
        options = self._options
        if sample.finish is Finish.eos or options.missing_eos is MissingEos.keep:
            return reward
        if options.missing_eos is MissingEos.fixed:
            return options.missing_eos_value
        return reward - options.missing_eos_value


def shaped(reward: Reward, options: ShapingOptions, response_limit: int) -> Reward:
    """The reward with its shaping; itself if there is none."""
    return ShapedScorer(reward, options, response_limit) if options.is_on else reward


def length_rewards(lengths: Sequence[int], correct: Sequence[bool]) -> list[float]:
    """Kimi k1.5: lambda = 1/2 - (length - shortest) / (longest - shortest) of the group for correct
    samples, min(0, lambda) for wrong ones; 0 where all are equally long."""
    shortest, longest = min(lengths), max(lengths)
    if shortest == longest:
        return [0.0] * len(lengths)
    lambdas = [0.5 - (length - shortest) / (longest - shortest) for length in lengths]
    return [x if is_right else min(0.0, x) for x, is_right in zip(lambdas, correct, strict=True)]


def overlong(length: int, buffer: int, limit: int) -> float:
    """DAPO: 0 until `buffer` tokens are left below the limit, 1 at it, linear between."""
    return min(max((length - (limit - buffer)) / buffer, 0.0), 1.0) if buffer else 0.0

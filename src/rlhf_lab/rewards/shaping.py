"""What is made of a reward before it is trained on: bounds, the end token, and length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from rlhf_lab.types import limits
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.protocols import Metered, Reward, scored_groups
from rlhf_lab.types.samples import Finish, Group, Sample


class MissingEos(StrEnum):
    """What becomes of the reward of a sample without the end token."""

    keep = "keep"
    fixed = "fixed"
    penalty = "penalty"


@dataclass(frozen=True)
class ShapingOptions(limits.Limited, key="shaping"):
    """Config node `shaping`: of the training reward alone, never of the judge. Off by default, and
    applied in this order.

    clip: min(reward - eta, 0), as in arXiv:2410.15115, section 4. bound: then to -bound .. bound
    (0: no bound). missing_eos: a sample without the end token gets missing_eos_value (fixed) or
    loses it (penalty). length_weight: times the length reward of Kimi k1.5 (arXiv:2501.12599,
    section 2.3.3) within the group; correct are rewards of correct_from or more, before shaping.
    overlong_buffer: tokens below the response limit over which the punishment of length rises from
    0 to overlong_penalty (DAPO, arXiv:2503.14476, eq. 13); 0 is none.
    """

    clip: bool = False
    eta: float = limits.score(0.0)
    bound: float = limits.coefficient(0.0)
    missing_eos: MissingEos = MissingEos.keep
    missing_eos_value: float = limits.score(0.0)
    length_weight: float = limits.coefficient(0.0)
    correct_from: float = limits.score(1.0)
    overlong_buffer: int = limits.tokens(0, least=0)
    overlong_penalty: float = limits.coefficient(1.0)

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
        for key in ("clip", "bound", "missing_eos", "length_weight", "overlong_buffer"):
            if getattr(self, key) != getattr(default, key):
                return f"{key}={getattr(self, key)}"
        return ""

    @property
    def is_on(self) -> bool:
        return bool(self.first)


class ShapedScorer:
    """A reward whose scores are shaped. Groups without a score stay without."""

    def __init__(self, inner: Reward, options: ShapingOptions, response_limit: int) -> None:
        self._inner = inner
        self._options = options
        self._limit = response_limit

    def score(self, groups: Sequence[Group]) -> list[tuple[float, ...]]:
        """One float per sample, in order."""
        return [group.rewards for group in self.scored(groups)]

    def scored(self, groups: Sequence[Group]) -> list[Group]:
        """The same with what steps earned, which shaping leaves as it is: the end pays for it."""
        return [
            group.scored(self._row(group, group.rewards), group.step_rewards)
            for group in scored_groups(self._inner, groups)
        ]

    def drain(self) -> Mapping[str, int]:
        """The counts of the reward."""
        return self._inner.drain() if isinstance(self._inner, Metered) else {}

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

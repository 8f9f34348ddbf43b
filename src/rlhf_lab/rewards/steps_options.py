"""Config option `reward=steps`: rewards of single steps (arXiv:2410.15115, section 4)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from rlhf_lab.rewards import fields
from rlhf_lab.rewards.options import RewardContext, RewardOptions
from rlhf_lab.types import limits
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.precision import Precision
from rlhf_lab.types.reward import Reward
from rlhf_lab.types.samples import Example

Decode = Callable[[Sequence[int]], str]


def step_ends(tokens: Sequence[int], decode: Decode, separator: str, most: int) -> list[int]:
    """Last token of every step: the first one with which the decoded prefix holds the separator.

    Steps without a word belong to the next one, and those that end in one token are one. What
    follows the last separator is a step too, if it is more than white space. At least one step.
    """
    text = decode(tokens)
    ends: list[int] = []
    start = stop = number = 0
    while (index := text.find(separator, stop)) >= 0:
        stop, number = index + len(separator), number + 1
        if has_words(text[start:stop], separator):
            start = stop
            end = first_with(tokens, decode, separator, number)
            ends += [end] if end not in ends[-1:] else []
    if not ends or (has_words(text[start:], separator) and ends[-1] < len(tokens) - 1):
        ends.append(len(tokens) - 1)
    return [*ends[: most - 1], ends[-1]] if len(ends) > most else ends


def has_words(text: str, separator: str) -> bool:
    """Whether there is more to a step than what separates it from others."""
    return bool(text.replace(separator, "").strip())


def first_with(tokens: Sequence[int], decode: Decode, separator: str, number: int) -> int:
    """The first token whose decoded prefix holds the separator so many times."""

    def holds(index: int) -> bool:
        return decode(tokens[: index + 1]).count(separator) >= number

    return bisect_left(range(len(tokens) - 1), True, key=holds)


class Refine(StrEnum):
    """How the probabilities of the steps become rewards."""

    none = "none"
    clip = "clip"
    delta = "delta"
    clip_delta = "clip_delta"


@dataclass(frozen=True)
class StepsReward(RewardOptions):
    """The reward of a sample is the sum of what its steps earn (arXiv:2410.15115)."""

    name: str = limits.name("steps")
    path: str = limits.option(
        "",
        about=(
            "A sequence-classification model with one label: the sigmoid of its score is the "
            "probability that the step it has just read is right."
        ),
    )
    tokenizer: str = fields.tokenizer()
    separator: str = limits.option("\\n", about="Text that ends a step; \\n is the end of a line.")
    max_steps: int = limits.count(
        32, max=10**6, about="Most steps of a response; what follows belongs to the last step."
    )
    refine: Refine = limits.option(
        Refine.clip_delta,
        about=(
            "What is made of step scores: nothing, clipped by eta, differences to the next step "
            "(delta), or both."
        ),
        source="arXiv:2410.15115, section 4",
    )
    eta: float = limits.share(
        0.5,
        about="Threshold of the clip: a step earns min(score - eta, 0).",
        source="arXiv:2410.15115, section 4",
    )
    micro_rows: int = fields.micro_rows()
    device: str = fields.device()
    dtype: Precision = fields.dtype()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.separator:
            raise UserError("reward.separator='': say what ends a step, as in reward.separator=.")

    def build(self, context: RewardContext) -> Reward:
        # With torch, which options are made without.
        from rlhf_lab.rewards.steps import build_steps

        return build_steps(self, context)

    def step_model_paths(self) -> list[str]:
        return [self.path]

    def require_usable(self, key: str) -> None:
        if not self.path:
            raise UserError(
                f"{key}.path='': name the model that scores steps, the hub name or folder of a "
                "sequence-classification model with one label"
            )

    def require_working(self, key: str, example: Example) -> None:
        from rlhf_lab.models.reward_model import open_reward_model
        from rlhf_lab.rewards.model import require_token_scores

        model, _ = open_reward_model(self.path, f"{key}.path", self.tokenizer)
        require_token_scores(model, self.path, f"{key}.path")

    @property
    def mark(self) -> str:
        """The separator with line ends in place of \\n."""
        return self.separator.replace("\\n", "\n")

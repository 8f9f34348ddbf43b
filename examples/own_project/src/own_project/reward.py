"""`reward=right_places`: a rule that gives a part of the reward for a part of the answer."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from rlhf_lab.rewards import fields
from rlhf_lab.rewards.limited import OnError, SampleScorer
from rlhf_lab.rewards.options import RewardOptions
from rlhf_lab.types import limits
from rlhf_lab.types.samples import Example

if TYPE_CHECKING:
    from rlhf_lab.rewards.options import RewardContext


@dataclass(frozen=True)
class RightPlaces(RewardOptions, key="reward"):
    """The share of the answer's characters that stand in their place."""

    name: str = limits.name("right_places")
    unfinished: float = limits.score(-1.0, about="Score of a response without the end token.")
    on_error: OnError = fields.on_error()
    # The score depends on the row, not on the texts alone.
    reads_example: ClassVar[bool] = True

    def build(self, context: RewardContext) -> SampleScorer:
        """The live reward. Each generator process builds its own."""
        return SampleScorer(functools.partial(places, self.unfinished), 0.0, self.on_error)


def places(unfinished: float, example: Example, text: str, finished: bool) -> float:
    """The share of places with the right character; those beyond the answer count as wrong ones."""
    if not finished:
        return unfinished
    answer = example.hidden["answer"]
    right = sum(one == other for one, other in zip(text, answer, strict=False))
    return right / max(len(text), len(answer))

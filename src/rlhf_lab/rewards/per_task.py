"""A reward for each task of a mixture (arXiv:2409.20370, section 4; arXiv:2411.15124)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from rlhf_lab.rewards.options import RewardOptions
from rlhf_lab.types import limits
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.reward_protocols import Metered, Reward, scored_groups
from rlhf_lab.types.samples import MIXED_TASK, Group


@dataclass(frozen=True)
class PerTaskReward(RewardOptions):
    """The reward of the sample's task; add one with +reward@reward.terms.TASK=OPTION."""

    name: str = limits.name("per_task")
    terms: dict[str, Any] = limits.collection(
        dict, about="The reward of each task of task=mixture, by the task's name there."
    )
    reads_example: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.terms:
            raise UserError(
                "reward.terms has no reward: add one for each task of the mixture with "
                "+reward@reward.terms.TASK=OPTION"
            )


class PerTaskScorer:
    """Scores each group by the live reward of its task."""

    def __init__(self, terms: Mapping[str, Reward]) -> None:
        self._terms = terms

    def score(self, groups: Sequence[Group]) -> list[tuple[float, ...]]:
        """One float per sample, in order."""
        return [group.rewards for group in self.scored(groups)]

    def scored(self, groups: Sequence[Group]) -> list[Group]:
        """The same, with what steps earned."""
        out = list(groups)
        for name, term in self._terms.items():
            places = [
                place
                for place, group in enumerate(groups)
                if group.prompt.example.hidden[MIXED_TASK] == name
            ]
            if places:
                found = scored_groups(term, [groups[place] for place in places])
                for place, group in zip(places, found, strict=True):
                    out[place] = group
        return out

    def drain(self) -> Mapping[str, int]:
        """The counts of all tasks' rewards."""
        counts: Counter[str] = Counter()
        for term in self._terms.values():
            if isinstance(term, Metered):
                counts.update(term.drain())
        return counts

"""The preference or the scores that fixed pairs come with, as a reward."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import Example, Group


class PreferenceScorer:
    """The rewards of chosen and rejected: 1 and 0, or the numbers of the fields chosen_NAME and
    rejected_NAME of each row."""

    def __init__(self, name: str = "") -> None:
        self._name = name

    def score(self, groups: Sequence[Group]) -> list[tuple[float, ...]]:
        """One float per sample, in order."""
        return [self.rewards(group.prompt.example) for group in groups]

    def rewards(self, example: Example) -> tuple[float, float]:
        """The two rewards of a pair. Raises UserError if a field is missing or no finite number."""
        if not self._name:
            return 1.0, 0.0
        chosen, rejected = (self._number(example, side) for side in ("chosen", "rejected"))
        return chosen, rejected

    def _number(self, example: Example, side: str) -> float:
        field = f"{side}_{self._name}"
        value = example.hidden.get(field)
        if not isinstance(value, int | float) or not math.isfinite(value):
            raise UserError(
                f"generator.scores={self._name}: pair {example.uid} has no finite number in field "
                f"{field}; write it, or pass generator.scores='' for rewards of 1 and 0"
            )
        return float(value)

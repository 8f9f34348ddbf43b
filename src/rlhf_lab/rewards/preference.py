"""The preference that fixed pairs come with, as a reward."""

from __future__ import annotations

from collections.abc import Sequence

from rlhf_lab.types.samples import Group


class PreferenceScorer:
    """1 for the first sample of a group, which was chosen, and 0 for the rejected rest."""

    def score(self, groups: Sequence[Group]) -> list[tuple[float, ...]]:
        """One float per sample, in order."""
        return [(1.0, *(0.0 for _ in group.samples[1:])) for group in groups]

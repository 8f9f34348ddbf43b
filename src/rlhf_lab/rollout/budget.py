"""Which chunks may be generated now. This is all that tells synchronous from asynchronous."""

from __future__ import annotations


class StalenessBudget:
    """Admits the chunks of rounds up to version + max_staleness, never beyond the run's end.

    So the chunks of round r are written by version max(0, r - max_staleness), in every mode, and
    every mode generates exactly the same prompts. S = 0 is synchronous.
    """

    def __init__(self, max_staleness: int, chunks_per_round: int, num_rounds: int) -> None:
        self._max_staleness = max_staleness
        self._chunks_per_round = chunks_per_round
        self._num_rounds = num_rounds
        self._admitted = 0

    def admit(self, version: int) -> range:
        """Numbers of the chunks to start now, counted over the whole run."""
        rounds = min(version + self._max_staleness + 1, self._num_rounds)
        start = self._admitted
        self._admitted = max(start, rounds * self._chunks_per_round)
        return range(start, self._admitted)

    def version_of(self, round_: int) -> int:
        """The version that writes the samples of a round."""
        return max(0, round_ - self._max_staleness)

"""Which chunks may be generated now. This is all that tells synchronous from asynchronous."""

from __future__ import annotations

from collections.abc import Callable, Mapping


class StalenessBudget:
    """Admits the chunks of rounds up to version + max_staleness, never beyond the run's end.

    So the chunks of round r are written by version max(0, r - max_staleness), in every mode, and
    every mode generates exactly the same prompts. S = 0 is synchronous. lag(chunk number), if
    given, says how old a single chunk is to be, from 0 to max_staleness.
    """

    def __init__(
        self,
        max_staleness: int,
        chunks_per_round: int,
        num_rounds: int,
        lag: Callable[[int], int] | None = None,
    ) -> None:
        self._max_staleness = max_staleness
        self._chunks_per_round = chunks_per_round
        self._num_rounds = num_rounds
        self._lag = lag
        self._seen = 0
        self._held: list[int] = []
        self._refunds = 0

    def admit(self, version: int) -> list[int]:
        """Numbers of the chunks to start now, counted over the whole run, oldest first."""
        rounds = min(version + self._max_staleness + 1, self._num_rounds)
        end = max(self._seen, rounds * self._chunks_per_round + self._refunds)
        waiting = [*self._held, *range(self._seen, end)]
        self._seen = end
        if self._lag is None:
            return waiting
        self._held = [n for n in waiting if self.version_of(n) > version]
        return [n for n in waiting if self.version_of(n) <= version]

    def refund(self) -> None:
        """Give back the slot of a chunk that will never be trained on."""
        self._refunds += 1

    def version_of(self, number: int) -> int:
        """The version that writes a chunk, if nothing was refunded."""
        lag = self._lag(number) if self._lag else self._max_staleness
        return max(0, number // self._chunks_per_round - lag)

    def state(self) -> dict[str, int | list[int]]:
        """What `restore` needs to go on from here."""
        return {"seen": self._seen, "refunds": self._refunds, "held": self._held}

    def restore(self, state: Mapping[str, int | list[int]]) -> None:
        """Go on from a saved state: nothing is admitted twice, and nothing in a burst."""
        seen, refunds, held = state["seen"], state["refunds"], state["held"]
        assert isinstance(seen, int) and isinstance(refunds, int) and isinstance(held, list)
        self._seen, self._refunds, self._held = seen, refunds, held

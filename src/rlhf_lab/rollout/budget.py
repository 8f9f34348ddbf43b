"""The staleness budget: which chunks may be generated now.

Nothing else distinguishes synchronous from asynchronous training.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping


class StalenessBudget:
    """With version v, admits the chunks of rounds up to v + S, and none beyond the run's end.

    S is max_staleness; S = 0 is synchronous. The chunks of round r are thus written by version
    max(0, r - S), and every mode generates exactly the same prompts. lag(chunk number): the lag of
    a single chunk, from 0 to S, where lags are drawn at random.
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
        self._postponed: list[int] = []
        self._refunds = 0

    def admit(self, version: int) -> list[int]:
        """Numbers of the chunks to generate now, counted over the run, oldest first."""
        rounds = min(version + self._max_staleness + 1, self._num_rounds)
        end = max(self._seen, rounds * self._chunks_per_round + self._refunds)
        waiting = [*self._postponed, *range(self._seen, end)]
        self._seen = end
        if self._lag is None:
            return waiting
        self._postponed = [n for n in waiting if self.version_of(n) > version]
        return [n for n in waiting if self.version_of(n) <= version]

    def refund(self) -> None:
        """Admit one more chunk, in place of one that is dropped."""
        self._refunds += 1

    def version_of(self, number: int) -> int:
        """The version that writes a chunk, unless chunks were refunded."""
        lag = self._lag(number) if self._lag else self._max_staleness
        return max(0, number // self._chunks_per_round - lag)

    def state(self) -> dict[str, int | list[int]]:
        """The counters for `restore`."""
        return {"seen": self._seen, "refunds": self._refunds, "held": self._postponed}

    def restore(self, state: Mapping[str, int | list[int]]) -> None:
        """Continue from saved counters: no chunk is admitted twice, and none early."""
        seen, refunds, held = state["seen"], state["refunds"], state["held"]
        assert isinstance(seen, int) and isinstance(refunds, int) and isinstance(held, list)
        self._seen, self._refunds, self._postponed = seen, refunds, held

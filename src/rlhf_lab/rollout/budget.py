"""The staleness budget: which chunks may be generated now.

Nothing else distinguishes synchronous from asynchronous training.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


class StalenessBudget:
    """With version v, admits the chunks of rounds up to v + S, and none beyond the run's end.

    S is max_staleness; S = 0 is synchronous. The chunks of round r are thus written by version
    max(0, r - S), and every mode generates exactly the same prompts. lag(chunk number): the lag of
    a single chunk, from 0 to S, where lags are drawn at random.

    In a fork of another run, chunks that were on their way at its round keep the versions that
    wrote them (`inherited`), and no version before that round writes others (`first`).
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
        self._first = 0
        self._inherited: dict[int, int] = {}

    def admit(self, version: int) -> list[int]:
        """Numbers of the chunks to generate now, counted over the run, oldest first."""
        rounds = min(version + self._max_staleness + 1, self._num_rounds)
        end = max(self._seen, rounds * self._chunks_per_round + self._refunds)
        due = list(range(self._seen, end))
        self._seen = end
        # Without drawn lags, only chunks that a fork's parent had postponed wait for their version.
        waiting = self._postponed
        if self._lag is not None:
            waiting, due = [*waiting, *due], []
        self._postponed = [n for n in waiting if self.version_of(n) > version]
        return sorted([*due, *(n for n in waiting if self.version_of(n) <= version)])

    def refund(self) -> None:
        """Admit one more chunk, in place of one that is dropped."""
        self._refunds += 1

    def version_of(self, number: int) -> int:
        """The version that writes a chunk, unless chunks were refunded."""
        if number in self._inherited:
            return self._inherited[number]
        lag = self._lag(number) if self._lag else self._max_staleness
        return max(self._first, number // self._chunks_per_round - lag)

    def is_inherited(self, number: int) -> bool:
        """Whether a chunk was on its way when a fork began."""
        return number in self._inherited

    def inherited_lag(self, version: int) -> int:
        """Rounds by which inherited chunks that are still needed may be older than a version."""
        if not self._inherited:
            return 0
        last = max(self._inherited) // self._chunks_per_round
        # The gap probe reads the round just trained.
        return version - min(self._inherited.values()) if version <= last + 1 else 0

    def state(self) -> dict[str, Any]:
        """The counters for `restore`."""
        state = {"seen": self._seen, "refunds": self._refunds, "held": self._postponed}
        if not self._first:
            return state
        inherited = [[number, version] for number, version in self._inherited.items()]
        return {**state, "first": self._first, "inherited": inherited}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from saved counters: no chunk is admitted twice, and none early."""
        seen, refunds, held = state["seen"], state["refunds"], state["held"]
        assert isinstance(seen, int) and isinstance(refunds, int) and isinstance(held, list)
        self._seen, self._refunds, self._postponed = seen, refunds, held
        self._first = state.get("first", 0)
        self._inherited = dict(map(tuple, state.get("inherited", ())))

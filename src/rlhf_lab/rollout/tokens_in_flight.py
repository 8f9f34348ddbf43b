"""Response tokens that were generated, and those among them that no round has taken yet."""

from __future__ import annotations

import threading

from rlhf_lab.types.rollouts import Rollout


class TokensInFlight:
    """Counts by chunk. `add` is called in the thread that finished a rollout."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._in_flight: dict[tuple[int, int], int] = {}
        self._generated = 0

    def add(self, rollout: Rollout) -> None:
        """Count a rollout, or a segment of one, as generated and not taken."""
        with self._lock:
            self._generated += rollout.response_tokens
            key = (rollout.chunk.round, rollout.chunk.index)
            self._in_flight[key] = self._in_flight.get(key, 0) + rollout.response_tokens

    def take(self, rollout: Rollout) -> None:
        """A round has taken a rollout, or passed it over as too old."""
        with self._lock:
            del self._in_flight[rollout.chunk.round, rollout.chunk.index]

    def restore(self, taken: int) -> None:
        """Continue from the tokens that rounds before a checkpoint have taken."""
        self._generated = taken

    @property
    def totals(self) -> tuple[int, int]:
        """Tokens generated so far, and those among them that have not been taken yet."""
        with self._lock:
            return self._generated, sum(self._in_flight.values())

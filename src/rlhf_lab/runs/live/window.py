"""Numbers of a run's last rounds: means, rates and shares of time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rlhf_lab.runs.live.rows import Row

# Rounds that a smoothed number covers.
WINDOW = 10


class Window:
    """The last rounds of `rows`, at most WINDOW. Sums in rows count from the run's beginning, so a
    window's share is the difference between its last row and the row before it."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = rows[-WINDOW:]
        self._before: Row | None = None
        if len(rows) > WINDOW:
            self._before = rows[-WINDOW - 1]
        elif len(rows) > 1 and rows[0].step > 0:
            # Of a long file only the end was read.
            self._before, self.rows = rows[0], rows[1:]

    @property
    def num_rounds(self) -> int:
        return len(self.rows)

    def mean(self, name: str) -> float | None:
        """The mean of a number over the rounds that have it."""
        values = [value for row in self.rows if (value := row.get(name)) is not None]
        return sum(values) / len(values) if values else None

    def change(self, name: str) -> float | None:
        """By how much a sum grew; None where it is unknown."""
        end = self.rows[-1].get(name) if self.rows else None
        if end is None:
            return None
        start = self._before.get(name) if self._before is not None else 0.0
        return None if start is None else end - start

    def share(self, name: str, lanes: int = 1) -> float | None:
        """The share of the wall-clock of `lanes` workers that a sum of seconds took, 0 to 1."""
        amount, wall = self.change(name), self.change("wall")
        if amount is None or not wall or wall < 0:
            return None
        return min(1.0, max(0.0, amount / (wall * lanes)))

    def per_second(self, name: str) -> float | None:
        """How much a sum grew per second of wall-clock."""
        amount, wall = self.change(name), self.change("wall")
        return amount / wall if amount is not None and wall and wall > 0 else None

    @property
    def seconds_per_round(self) -> float | None:
        wall = self.change("wall")
        return wall / self.num_rounds if wall is not None and wall >= 0 else None

    def lags(self, unit: str) -> dict[int, int]:
        """Rows by lag over the window. unit: rounds or updates."""
        total: Counter[int] = Counter()
        for row in self.rows:
            total.update(row.rounds if unit == "rounds" else row.updates)
        return dict(sorted(total.items()))


def shares(window: Window, generators: int) -> dict[str, float | None]:
    """How the lanes spent the window."""
    if generators:
        return {
            "trainer_waiting": window.share("wait"),
            "generator_waiting": window.share("generator_wait", generators),
        }
    generating, scoring = window.share("generate"), window.share("score")
    if generating is not None and scoring is not None:
        generating = min(1.0, generating + scoring)
    return {"generating": generating, "training": window.share("train")}

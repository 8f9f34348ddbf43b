"""Time an action, and summarise repeated measurements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter


def seconds_of(action: Callable[[], object], trials: int, device: str = "cpu") -> list[float]:
    """Seconds of each trial, until the device has nothing left to do, after one that is not
    counted."""
    found = []
    for _ in range(trials + 1):
        start = perf_counter()
        action()
        if device == "cuda":
            import torch

            torch.cuda.synchronize()
        found.append(perf_counter() - start)
    return found[1:]


@dataclass(frozen=True)
class Spread:
    """Median, smallest and largest of some values."""

    middle: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(median(values), min(values), max(values))

    def text(self, form: str = ",.0f") -> str:
        return f"{self.middle:{form}} [{self.low:{form}}, {self.high:{form}}]"

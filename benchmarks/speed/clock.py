"""Time an action, and summarise repeated measurements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter


def elapsed(action: Callable[[], object], device: str = "cpu") -> float:
    """Seconds of one call, until the device has nothing left to do."""
    start = perf_counter()
    action()
    if device == "cuda":
        import torch

        torch.cuda.synchronize()
    return perf_counter() - start


def seconds_of(action: Callable[[], object], trials: int, device: str = "cpu") -> list[float]:
    """Seconds of each trial, after one that is not counted."""
    return [elapsed(action, device) for _ in range(trials + 1)][1:]


def rotated(names: Sequence[str], repeat: int) -> list[str]:
    """The names in their order, another one first in each repeat."""
    first = repeat % len(names)
    return [*names[first:], *names[:first]]


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

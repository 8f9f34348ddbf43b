"""Which weights write a chunk, if not those of its admission: the newest, or recorded ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rlhf_lab.types.data import Weights
from rlhf_lab.types.protocols import WeightFeed

Segments = tuple[tuple[int, int], ...]


@dataclass
class LatestWeights:
    """The newest weights when the chunk starts, and at every later token if in_sequence."""

    read: Callable[[], Weights]
    per_token: bool
    _first: Weights | None = None

    def at(self, step: int) -> Weights:
        if self._first is None or self.per_token:
            self._first = self.read()
        return self._first


@dataclass(frozen=True)
class RecordedWeights:
    """The weights of a recorded schedule, from the versions that the trainer still has."""

    segments: Segments
    history: Mapping[int, Weights]

    def at(self, step: int) -> Weights:
        version = next(v for start, v in reversed(self.segments) if start <= step)
        return self.history[version]


class SegmentRecorder:
    """Passes weights through, notes from which step on each version wrote, and tells `pulse`."""

    def __init__(self, feed: WeightFeed, pulse: Callable[[], None]) -> None:
        self._feed = feed
        self._pulse = pulse
        self._segments: list[tuple[int, int]] = []

    def at(self, step: int) -> Weights:
        self._pulse()
        weights = self._feed.at(step)
        if not self._segments or self._segments[-1][1] != weights.version:
            self._segments.append((step, weights.version))
        return weights

    @property
    def segments(self) -> Segments:
        return tuple(self._segments)

"""Feeds of weights for a chunk, besides a fixed version: the latest one, or a recorded schedule."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rlhf_lab.types.data import Weights
from rlhf_lab.types.protocols import WeightFeed

Segments = tuple[tuple[int, int], ...]


@dataclass
class LatestWeights:
    """The latest weights: those at the chunk's first token, or at every token if per_token."""

    read: Callable[[], Weights]
    per_token: bool
    _current: Weights | None = None

    def at(self, step: int) -> Weights:
        if self._current is None or self.per_token:
            self._current = self.read()
        return self._current


@dataclass(frozen=True)
class RecordedWeights:
    """The versions of a recorded schedule. history: versions that the trainer still has."""

    segments: Segments
    history: Mapping[int, Weights]

    def at(self, step: int) -> Weights:
        version = next(v for start, v in reversed(self.segments) if start <= step)
        return self.history[version]


class SegmentRecorder:
    """Wraps a feed and records from which token on each version wrote. pulse: called per token, as
    a heartbeat."""

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


def is_following(feed: WeightFeed) -> bool:
    """Whether newer weights may come while a chunk is written."""
    return bool(getattr(feed, "per_token", False))


def source_of(feed: WeightFeed) -> int | bool:
    """What is sent to another process in place of a feed: the version, or whether every token is
    written by the latest weights."""
    if isinstance(feed, Weights):
        return feed.version
    if isinstance(feed, LatestWeights):
        return feed.per_token
    raise TypeError(f"{type(feed).__name__} cannot be sent to another process")


def are_together(source: int | bool, other: int | bool) -> bool:
    """Whether chunks of these sources may be written at the same time: those of one version, or
    all that follow the latest weights at every token."""
    if isinstance(source, bool) or isinstance(other, bool):
        return source is True and other is True
    return source == other

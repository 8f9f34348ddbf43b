"""A chunk on its way: pending in the pipeline, queued in a checkpoint, or taken for a round."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from rlhf_lab.rollout.partial_rollout import PartialRollout
from rlhf_lab.types.rollouts import Rollout
from rlhf_lab.types.samples import Group


@dataclass
class PendingChunk:
    """An admitted chunk whose rollout has not been taken yet.

    number: over the run. version: of the weights at its admission. is_refunded: it turned out too
    old, and another chunk was admitted in its place. partial: set where it is written in segments.
    """

    number: int
    version: int
    future: Future[Rollout]
    is_refunded: bool = False
    partial: PartialRollout | None = None


@dataclass(frozen=True)
class QueuedChunk:
    """A pending chunk in a checkpoint. rollout: None if unfinished; it is then generated again."""

    number: int
    version: int
    is_refunded: bool
    rollout: Rollout | None


@dataclass(frozen=True)
class RoundRollouts:
    """The rollouts of one round, oldest first.

    dropped: those passed over as too old. schedule: one row per chunk of both: round, number,
    segments (which version wrote from which token on) and whether it was dropped.
    """

    rollouts: list[Rollout]
    dropped: list[Rollout]
    schedule: list[dict[str, Any]]

    @property
    def numbers(self) -> list[int]:
        """The number of each rollout's chunk over the run."""
        return [row["chunk"] for row in self.schedule if not row["dropped"]]

    @property
    def groups(self) -> list[Group]:
        """Groups with rewards, in order."""
        return [group for group in self._all if group.rewards]

    @property
    def unscored(self) -> list[Group]:
        """Groups that the reward could not score."""
        return [group for group in self._all if not group.rewards]

    @property
    def _all(self) -> Iterator[Group]:
        return (group for rollout in self.rollouts for group in rollout.groups)

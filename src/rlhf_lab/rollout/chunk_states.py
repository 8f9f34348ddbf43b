"""Samples on their way: pending in a queue, queued in a checkpoint, or taken for a round."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from rlhf_lab.rollout.open_groups import OpenGroup
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


# What a checkpoint keeps of a queue: chunks of one round each, or groups that move between rounds.
Queued = QueuedChunk | OpenGroup


@dataclass(frozen=True)
class RoundRollouts:
    """The rollouts of one round, oldest first.

    dropped: those passed over as too old. schedule: one row per rollout of both: round, number of
    the chunk, segments (which version wrote from which token on), whether it was dropped, steps
    (tokens of its longest response); place is that of its first group within the chunk, 0 if left
    out. work: segments that were generated in this round, without groups, where groups are not
    taken by the chunk.
    """

    rollouts: list[Rollout]
    dropped: list[Rollout]
    schedule: list[dict[str, Any]]
    work: list[Rollout] = field(default_factory=list)

    @property
    def generated(self) -> list[Rollout]:
        """All that generation cost: what is trained on, what was dropped, and the work on groups
        that may not be due yet."""
        return [*self.rollouts, *self.dropped, *self.work]

    @property
    def origins(self) -> Iterator[tuple[int, int, Group]]:
        """Every group that was not dropped, with the number of its chunk over the run and its place
        within that."""
        taken = [row for row in self.schedule if not row["dropped"]]
        for row, rollout in zip(taken, self.rollouts, strict=True):
            for place, group in enumerate(rollout.groups, row.get("place", 0)):
                yield row["chunk"], place, group

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

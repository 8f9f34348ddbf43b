"""The state of a run at which a fork of it begins, from a checkpoint of the run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rlhf_lab.rollout.chunk_states import QueuedChunk
from rlhf_lab.training.checkpoint_files import Snapshot


def along_schedule(snapshot: Snapshot, chunks_per_round: int) -> Snapshot:
    """The state of a replay at the round of a run whose timing decided which version wrote what.

    A replay admits the chunks of one round at a time; those of later rounds are generated again
    when they are due, by the versions that the schedule has.
    """
    budget: Mapping[str, Any] = snapshot.counters["budget"]
    chunks = [one for one in snapshot.queue if isinstance(one, QueuedChunk)]
    first = chunks[0].number
    drops = first - snapshot.round * chunks_per_round
    seen = first + chunks_per_round
    replayed = dict(budget) | {"seen": seen, "refunds": drops, "held": []}
    queue = [replace(one, is_refunded=False) for one in chunks if one.number < seen]
    return replace(snapshot, counters={**snapshot.counters, "budget": replayed}, queue=queue)


def forked(snapshot: Snapshot, keeps_coefficient: bool) -> Snapshot:
    """The state at which a fork's own settings begin.

    Chunks on their way keep the versions that wrote them; all others are written by the version of
    the fork's round or by later ones. keeps_coefficient: whether a KL coefficient that adapts goes
    on, rather than beginning anew.
    """
    budget: Mapping[str, Any] = snapshot.counters.get("budget", {})
    if budget.get("first") == snapshot.round:
        return snapshot
    counters = dict(snapshot.counters)
    if budget:
        # Groups that move from round to round, which have no budget, know their versions.
        inherited = [
            [one.number, one.rollout.version if one.rollout is not None else one.version]
            for one in snapshot.queue
            if isinstance(one, QueuedChunk)
        ]
        counters["budget"] = dict(budget) | {"first": snapshot.round, "inherited": inherited}
    if not keeps_coefficient:
        counters.pop("kl_coef", None)
    return replace(snapshot, counters=counters)

"""What a run does besides learning, as functions that the loop calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlhf_lab.runs.schema import RolloutSample
from rlhf_lab.types.data import Batch, Metrics, Weights
from rlhf_lab.types.samples import Group


@dataclass(frozen=True)
class Hooks:
    """What a run does besides learning. Its seconds count: generators work on meanwhile, so time
    that is left out would make asynchronous runs look faster than they are.

    log(metrics, round): one row per round. record(schedule, events): which version wrote each chunk
    of the round, and spans of time. save(weights): every version, the first included.
    keep_batch(batch, groups, reason): a batch that could not be trained on, for debugging.
    keep_samples(samples): some samples of the round. should_stop(): read between rounds.
    enter(phase): the trainer begins a phase of the ledger.
    """

    log: Callable[[Metrics, int], None]
    record: Callable[[Sequence[Mapping[str, Any]], Sequence[Mapping[str, Any]]], None]
    save: Callable[[Weights], None]
    keep_batch: Callable[[Batch, Sequence[Group], str], None]
    keep_samples: Callable[[Sequence[RolloutSample]], None] = lambda _: None
    should_stop: Callable[[], bool] = lambda: False
    enter: Callable[[str], None] = lambda _: None

"""The part of the pipeline that modes differ in: which samples each round trains on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from rlhf_lab.rollout.chunk_states import Queued, RoundRollouts
from rlhf_lab.types.data import Metrics, Weights


class RoundQueue(Protocol):
    """Samples on their way to the rounds that train on them.

    fill: submit all that may be generated now that these weights exist. take: wait for the round of
    these weights; nothing is taken before all of it is there, and what a worker raised is raised.
    finish: wait until what is on its way is written, but what later versions continue.
    tokens: generated so far, and those among them that have not been taken. measures: what it has
    counted when the weights after a round are filled in: of that round, or sums over the run until
    then, which hold the round's training too. state, restore: of a checkpoint between two rounds.
    """

    def fill(self, weights: Weights) -> None: ...

    def take(self, weights: Weights) -> RoundRollouts: ...

    def finish(self) -> None: ...

    def tokens(self) -> tuple[int, int]: ...

    def measures(self) -> Metrics: ...

    def state(self) -> tuple[dict[str, Any], list[Queued]]: ...

    def restore(
        self,
        counters: Mapping[str, Any],
        queued: Sequence[Queued],
        weights: Mapping[int, Weights],
    ) -> None: ...

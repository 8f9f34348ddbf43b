"""Rounds of groups in order: fill what the budget admits, then wait for the oldest."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from types import TracebackType

from rlhf_lab.rollout.budget import StalenessBudget
from rlhf_lab.rollout.executor import Executor
from rlhf_lab.types import Chunk, Rollout, Weights


class Pipeline:
    """chunk(number) gives the run's n-th chunk; it must not depend on when it is asked."""

    def __init__(
        self,
        executor: Executor,
        budget: StalenessBudget,
        chunk: Callable[[int], Chunk],
        chunks_per_round: int,
    ) -> None:
        self._executor = executor
        self._budget = budget
        self._chunk = chunk
        self._chunks_per_round = chunks_per_round
        self._pending: deque[Future[Rollout]] = deque()

    def __enter__(self) -> Pipeline:
        self._executor.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._executor.close()

    @property
    def seconds_in_caller(self) -> float:
        """Generation and scoring done in the trainer's own time so far."""
        return self._executor.seconds_in_caller

    def fill(self, weights: Weights) -> None:
        """Hand over every chunk that these weights may write."""
        for number in self._budget.admit(weights.version):
            self._pending.append(self._executor.submit(weights, self._chunk(number)))

    def take(self, weights: Weights) -> list[Rollout]:
        """The rollouts of the next round, in order. Re-raises what a worker raised."""
        self.fill(weights)
        rollouts = [self._pending.popleft().result() for _ in range(self._chunks_per_round)]
        for rollout in rollouts:
            round_ = rollout.chunk.round
            expected = self._budget.version_of(round_)
            if round_ != weights.version or rollout.version != expected:
                raise RuntimeError(
                    f"off-policy accounting broken: round {weights.version} got chunk "
                    f"{rollout.chunk.index} of round {round_}, written by version "
                    f"{rollout.version}; expected version {expected}"
                )
        return rollouts

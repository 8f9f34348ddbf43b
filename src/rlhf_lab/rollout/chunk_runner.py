"""The chunks of a run, the versions of the weights that write them, and the executor of both."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet

from rlhf_lab.rollout.executor import Executor
from rlhf_lab.rollout.mode import Mode
from rlhf_lab.types.data import Weights
from rlhf_lab.types.errors import StopRequested
from rlhf_lab.types.rollouts import Chunk, Rollout


class ChunkPrefetcher:
    """Call it like `make`: it returns chunk n, and prepares the next `count` chunks in a thread; of
    none, it makes chunk n itself."""

    def __init__(self, make: Callable[[int], Chunk], count: int) -> None:
        self._make = make
        self._count = count
        self._futures: dict[int, Future[Chunk]] = {}
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="prompts")

    def __call__(self, number: int) -> Chunk:
        if not self._count:
            return self._make(number)
        for n in range(number, number + 1 + self._count):
            if n not in self._futures:
                self._futures[n] = self._pool.submit(self._make, n)
        chunk = self._futures.pop(number).result()
        self._futures = {n: future for n, future in self._futures.items() if n > number}
        return chunk

    def close(self) -> None:
        """Cancel what is not prepared yet."""
        self._pool.shutdown(cancel_futures=True)


POLL_SECONDS = 0.25


class ChunkRunner:
    """What a queue needs to have chunks generated.

    chunk(number): the run's n-th chunk, the same whenever it is called; `ahead` of them are
    prepared in advance. should_stop: read while it waits. report: receives the generators' notes
    for the user. inherited_lag(version): rounds by which chunks of a fork's parent may be older
    than a version. versions: the weights that are kept, by version.
    """

    def __init__(
        self,
        executor: Executor,
        chunk: Callable[[int], Chunk],
        mode: Mode,
        ahead: int = 0,
        should_stop: Callable[[], bool] = lambda: False,
        report: Callable[[str], None] = lambda _: None,
        inherited_lag: Callable[[int], int] = lambda _: 0,
    ) -> None:
        self.executor = executor
        self.chunk = ChunkPrefetcher(chunk, ahead)
        self.report = report
        self.versions: dict[int, Weights] = {}
        self._mode = mode
        self._should_stop = should_stop
        self._inherited_lag = inherited_lag

    def close(self) -> None:
        """Stop the generators and what is being prepared."""
        self.executor.close()
        self.chunk.close()

    def publish(self, weights: Weights) -> None:
        """Keep a version, and forget those that nothing needs any more."""
        self.versions[weights.version] = weights
        # One more than samples still to come need: the gap probe reads the round just trained.
        oldest = weights.version - self._max_lag(weights.version) - 1
        for version in [v for v in self.versions if v < oldest]:
            del self.versions[version]
        if self._mode.uses_latest_weights:
            self.executor.publish(weights)

    def _max_lag(self, version: int) -> int:
        return max(self._mode.max_lag, self._inherited_lag(version))

    def history(self) -> dict[int, Weights]:
        """Every version that may have written samples still to be taken."""
        newest = max(self.versions)
        oldest = newest - self._max_lag(newest)
        return {version: w for version, w in self.versions.items() if version >= oldest}

    def restore(self, weights: Mapping[int, Weights]) -> None:
        """Continue with the versions of a checkpoint."""
        self.versions.clear()
        self.versions.update(weights)
        if self._mode.uses_latest_weights:
            for version in sorted(weights):
                self.executor.publish(weights[version])

    def wait(self, future: Future[Rollout]) -> Rollout:
        """Wait for one chunk; raises if a generator fails or the run is asked to stop meanwhile."""
        while True:
            try:
                return future.result(timeout=None if future.done() else POLL_SECONDS)
            except NotYet:
                if self.executor.failure is not None:
                    raise self.executor.failure from None
                if self._should_stop():
                    raise StopRequested from None

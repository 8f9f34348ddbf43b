"""Who runs the rollout workers: the caller itself, threads, or processes with their own core."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Protocol

from torch import Tensor

from rlhf_lab.rollout.feeds import LatestWeights
from rlhf_lab.rollout.process import FailurePolicy, GeneratorProcess
from rlhf_lab.rollout.shared import SharedWeights
from rlhf_lab.rollout.worker import RolloutWorker
from rlhf_lab.types.data import Chunk, Rollout, Weights
from rlhf_lab.types.protocols import WeightFeed

MakeWorker = Callable[[], RolloutWorker]
WATCH_SECONDS = 0.25


class Executor(Protocol):
    """`submit` hands a chunk over; `publish` makes weights the newest ones.

    on_done is called with every rollout as it is finished, by whoever finished it.
    seconds_in_caller is work done in the trainer's own time. failure: what stopped a generator.
    """

    seconds_in_caller: float
    on_done: Callable[[Rollout], None]

    @property
    def failure(self) -> BaseException | None: ...

    @property
    def restarts(self) -> int: ...

    def start(self) -> None: ...

    def publish(self, weights: Weights) -> None: ...

    def latest(self, per_token: bool) -> WeightFeed: ...

    def submit(self, feed: WeightFeed, chunk: Chunk) -> Future[Rollout]: ...

    def close(self) -> None: ...


class InlineExecutor:
    """Generates at admission, in the caller's time: sync, lagged and replay modes."""

    failure: BaseException | None = None
    restarts = 0

    def __init__(self, make_worker: MakeWorker) -> None:
        self._make_worker = make_worker
        self.seconds_in_caller = 0.0
        self.on_done: Callable[[Rollout], None] = lambda _: None

    def start(self) -> None:
        self._worker = self._make_worker()

    def publish(self, weights: Weights) -> None:
        """Nobody generates between two submissions: the newest weights come with them."""

    def latest(self, per_token: bool) -> WeightFeed:
        raise NotImplementedError("the trainer generates by itself: there is nothing newer")

    def submit(self, feed: WeightFeed, chunk: Chunk) -> Future[Rollout]:
        future: Future[Rollout] = Future()
        try:
            rollout = self._worker.run(feed, chunk)
        except Exception as error:
            # Raised when it is taken, as if somebody else had generated.
            future.set_exception(error)
            return future
        self.seconds_in_caller += rollout.seconds
        self.on_done(rollout)
        future.set_result(rollout)
        return future

    def close(self) -> None:
        """Stop what the generator started."""
        self._worker.close()


@dataclass(frozen=True)
class ChunkRequest:
    """A chunk to generate, the weights to write it with, and the promise of its rollout."""

    feed: WeightFeed
    chunk: Chunk
    future: Future[Rollout]


def chunk_order(request: ChunkRequest) -> tuple[int, int]:
    """Sort key of requests, the oldest chunk first: (round, index within the round)."""
    return request.chunk.round, request.chunk.index


class Worker(Protocol):
    """What a thread of the background executor talks to."""

    restarts: int

    def spawn(self) -> None: ...

    def wait_ready(self) -> None: ...

    def send(self, feed: WeightFeed, chunk: Chunk) -> None: ...

    def receive(self) -> Rollout: ...

    def watch(self) -> None: ...

    def close(self) -> None: ...


class ThreadWorker:
    """A worker, and so a model, of the thread's own."""

    restarts = 0

    def __init__(self, make_worker: MakeWorker, number: int) -> None:
        self._make_worker = make_worker
        self._number = number
        self._worker: RolloutWorker | None = None
        self._sent: deque[tuple[WeightFeed, Chunk]] = deque()

    def spawn(self) -> None:
        self._worker = self._make_worker()

    def wait_ready(self) -> None:
        """It is ready when it is built."""

    def send(self, feed: WeightFeed, chunk: Chunk) -> None:
        self._sent.append((feed, chunk))

    def receive(self) -> Rollout:
        assert self._worker is not None, "receive before spawn"
        return replace(self._worker.run(*self._sent.popleft()), worker=self._number)

    def watch(self) -> None:
        """A thread cannot be killed; whatever it raises is seen."""

    def close(self) -> None:
        """It ends with its thread, and what its generator started ends now."""
        if self._worker is not None:
            self._worker.close()


@dataclass
class WorkerSlot:
    """A worker, and what it holds: the chunk at work first."""

    worker: Worker
    held: deque[ChunkRequest] = field(default_factory=deque)


class BackgroundExecutor:
    """Generators beside the trainer. Chunks are started oldest first, whoever is free.

    prefetch: chunks that a generator holds, the one at work included. They are handed over when
    they are submitted, so that it need not wait for its next one until a busy trainer lets the
    thread here run. Subclasses say what a worker is.
    """

    def __init__(self, workers: Sequence[Worker], prefetch: int) -> None:
        self._slots = [WorkerSlot(worker) for worker in workers]
        self._prefetch = prefetch
        self._waiting: deque[ChunkRequest] = deque()
        self._changed = threading.Condition()
        self._closing = threading.Event()
        self._latest: Weights | None = None
        self.failure: BaseException | None = None
        self.seconds_in_caller = 0.0
        self.on_done: Callable[[Rollout], None] = lambda _: None

    @property
    def restarts(self) -> int:
        return sum(slot.worker.restarts for slot in self._slots)

    def start(self) -> None:
        """All generators are ready when this returns: the run's clock has not begun."""
        started: list[Worker] = []
        try:
            for slot in self._slots:
                slot.worker.spawn()
                started.append(slot.worker)
            for worker in started:
                worker.wait_ready()
        except BaseException:
            for worker in started:
                worker.close()
            raise
        self._threads = [
            threading.Thread(target=self._serve, args=(slot,), name=f"serve-{n}", daemon=True)
            for n, slot in enumerate(self._slots)
        ]
        self._threads.append(threading.Thread(target=self._watch, name="watch", daemon=True))
        for thread in self._threads:
            thread.start()

    def publish(self, weights: Weights) -> None:
        self._latest = weights

    def latest(self, per_token: bool) -> WeightFeed:
        def read() -> Weights:
            assert self._latest is not None, "no weights were published"
            return self._latest

        return LatestWeights(read, per_token)

    def submit(self, feed: WeightFeed, chunk: Chunk) -> Future[Rollout]:
        request = ChunkRequest(feed, chunk, Future())
        with self._changed:
            # Oldest first: a chunk that is continued is taken before those begun in the meantime.
            self._waiting.append(request)
            self._waiting = deque(sorted(self._waiting, key=chunk_order))
            self._hand_over()
        return request.future

    def _hand_over(self) -> None:
        """Give what waits to whoever holds least, and has room."""
        while self._waiting:
            slot = min(self._slots, key=lambda slot: len(slot.held))
            if len(slot.held) >= self._prefetch:
                return
            request = self._waiting.popleft()
            slot.held.append(request)
            slot.worker.send(request.feed, request.chunk)
            self._changed.notify_all()

    def _serve(self, slot: WorkerSlot) -> None:
        """Wait for one worker's rollouts until the executor closes or a generator fails."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: slot.held or self._closing.is_set())
            if self._closing.is_set() or self.failure is not None:
                return
            request = slot.held[0]
            try:
                rollout = slot.worker.receive()
                self.on_done(rollout)
            except BaseException as error:
                if not self._closing.is_set():
                    self.failure = error
                request.future.set_exception(error)
                return
            with self._changed:
                slot.held.popleft()
                self._hand_over()
            self._done(request.feed)
            request.future.set_result(rollout)

    def _done(self, feed: WeightFeed) -> None:
        """A chunk of these weights is finished."""

    def _watch(self) -> None:
        while not self._closing.wait(WATCH_SECONDS):
            for slot in self._slots:
                slot.worker.watch()

    def close(self) -> None:
        """Stop at once: chunks at work are given up."""
        if self._closing.is_set():
            return
        with self._changed:
            self._closing.set()
            self._changed.notify_all()
        for slot in self._slots:
            slot.worker.close()
        for thread in getattr(self, "_threads", []):
            thread.join()


class ThreadExecutor(BackgroundExecutor):
    """Generators in threads of the trainer's process."""

    def __init__(self, make_worker: MakeWorker, num_workers: int, prefetch: int) -> None:
        super().__init__([ThreadWorker(make_worker, n) for n in range(num_workers)], prefetch)


class ProcessExecutor(BackgroundExecutor):
    """Generators in processes. A version's weights are written once, into shared memory.

    `make_worker` must be picklable: it is called in the new process. `state`: tensors like those of
    all versions. num_slots: versions that may be in use at once.
    """

    def __init__(
        self,
        make_worker: MakeWorker,
        num_workers: int,
        prefetch: int,
        state: Mapping[str, Tensor],
        num_slots: int,
        failures: FailurePolicy,
    ) -> None:
        self._shared = SharedWeights(state, num_slots)
        self._lock = threading.Lock()
        super().__init__(
            [GeneratorProcess(make_worker, self._shared, n, failures) for n in range(num_workers)],
            prefetch,
        )

    def publish(self, weights: Weights) -> None:
        with self._lock:
            if not self._shared.holds(weights.version):
                self._shared.write(weights)

    def latest(self, per_token: bool) -> WeightFeed:
        return LatestWeights(unread, per_token)

    def submit(self, feed: WeightFeed, chunk: Chunk) -> Future[Rollout]:
        if isinstance(feed, Weights):
            self.publish(feed)
            with self._lock:
                self._shared.pin(feed.version, 1)
        return super().submit(feed, chunk)

    def _done(self, feed: WeightFeed) -> None:
        if isinstance(feed, Weights):
            with self._lock:
                self._shared.pin(feed.version, -1)

    @property
    def pids(self) -> list[int]:
        """Process ids of the generators."""
        with contextlib.suppress(AttributeError):
            workers = [slot.worker for slot in self._slots]
            return [w.pid for w in workers if isinstance(w, GeneratorProcess)]
        return []


def unread() -> Weights:
    """The newest weights are read where they are used: in the other process."""
    raise NotImplementedError

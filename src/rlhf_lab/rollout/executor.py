"""Executors turn (weights, chunk) into rollouts, in the trainer's own time or beside it.

Threads and processes, whose executors are in background.py, share the queue of BackgroundExecutor.
"""

from __future__ import annotations

import math
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import monotonic
from types import FrameType
from typing import Protocol

from rlhf_lab.rollout.feeds import LatestWeights
from rlhf_lab.rollout.worker import RolloutWorker
from rlhf_lab.runs.foreign import own_frames
from rlhf_lab.runs.signals import current
from rlhf_lab.types.data import Weights
from rlhf_lab.types.errors import StopRequested
from rlhf_lab.types.protocols import WeightFeed
from rlhf_lab.types.rollouts import Chunk, Rollout

MakeWorker = Callable[[], RolloutWorker]
WATCH_SECONDS = 0.25


class Executor(Protocol):
    """Generates chunks. `submit` returns the future of a chunk's rollout.

    `prefetch` names chunks that are submitted next, with the same weights, so that a generator may
    write them together. `publish` makes a version the latest one, and `latest` is the feed that
    reads it: when the chunk starts, or before every token. on_done is called with every finished
    rollout, in the thread that finished it. seconds_in_caller: generation and scoring in the
    trainer's own time. failure: the error that stopped a generator. restarts: of generator
    processes. start: returns the generators' notes before their first chunks.
    """

    seconds_in_caller: float
    on_done: Callable[[Rollout], None]

    @property
    def failure(self) -> BaseException | None: ...

    @property
    def restarts(self) -> int: ...

    def start(self) -> tuple[str, ...]: ...

    def publish(self, weights: Weights) -> None: ...

    def latest(self, per_token: bool) -> WeightFeed: ...

    def prefetch(self, weights: Weights, chunks: Sequence[Chunk]) -> None: ...

    def submit(self, feed: WeightFeed, chunk: Chunk) -> Future[Rollout]: ...

    def close(self) -> None: ...


class InlineExecutor:
    """Generates when a chunk is submitted, in the time of the trainer (sync, lagged, recorded)."""

    failure: BaseException | None = None
    restarts = 0

    def __init__(
        self,
        make_worker: MakeWorker,
        hang_seconds: float = math.inf,
        report: Callable[[str], None] = lambda _: None,
    ) -> None:
        """hang_seconds: without progress in a call, after which `report` is called with its name:
        code in this process cannot be stopped but by a signal."""
        self._make_worker = make_worker
        self._hang_seconds, self._report = hang_seconds, report
        self.seconds_in_caller = 0.0
        self.on_done: Callable[[Rollout], None] = lambda _: None

    def start(self) -> tuple[str, ...]:
        self._worker = self._make_worker()
        return self._worker.opening()

    def publish(self, weights: Weights) -> None:
        """Nothing to do: every submission brings its weights with it."""

    def latest(self, per_token: bool) -> WeightFeed:
        raise NotImplementedError("the trainer generates by itself: no weights can come meanwhile")

    def prefetch(self, weights: Weights, chunks: Sequence[Chunk]) -> None:
        self._worker.prefetch(weights, chunks)

    def submit(self, feed: WeightFeed, chunk: Chunk) -> Future[Rollout]:
        future: Future[Rollout] = Future()
        try:
            with self._watched() as pulse, current().immediate():
                rollout = self._worker.run(feed, chunk, pulse)
        except (Exception, StopRequested) as error:
            # Raised when the chunk is taken, as by a background executor.
            future.set_exception(error)
            return future
        self.seconds_in_caller += rollout.seconds
        self.on_done(rollout)
        future.set_result(rollout)
        return future

    @contextmanager
    def _watched(self) -> Iterator[Callable[[], None]]:
        """The heartbeat of a call in the block; a call without one for too long is reported."""
        ended, caller, beats = threading.Event(), threading.get_ident(), [monotonic()]

        def watch() -> None:
            while not ended.wait(beats[-1] + self._hang_seconds - monotonic()):
                if monotonic() - beats[-1] >= self._hang_seconds:
                    self._report(self._hang_text(sys._current_frames()[caller]))
                    return

        def pulse() -> None:
            beats[0] = monotonic()

        if self._hang_seconds < math.inf:
            threading.Thread(target=watch, name="watch", daemon=True).start()
        try:
            yield pulse
        finally:
            ended.set()

    def _hang_text(self, frame: FrameType) -> str:
        """What a call does that takes too long: its name and where it is."""
        stack = "".join(traceback.format_stack(frame))
        where = own_frames(stack) or stack.splitlines()[-2:]
        return "\n".join(
            [
                f"{self._worker.calling} has made no progress for mode.hang_seconds="
                f"{self._hang_seconds:g}; Ctrl-C or SIGTERM ends the run with all its rounds saved",
                *where,
            ]
        )

    def close(self) -> None:
        """Stop what the generator started."""
        self._worker.close()


@dataclass(frozen=True)
class ChunkRequest:
    """A chunk to generate, the feed of weights for it, and the future of its rollout."""

    feed: WeightFeed
    chunk: Chunk
    future: Future[Rollout]


class Worker(Protocol):
    """A generator beside the trainer. `wait_ready` returns its notes before its first chunk. `send`
    hands a chunk over, `receive` waits for the oldest."""

    restarts: int

    def spawn(self) -> None: ...

    def wait_ready(self) -> tuple[str, ...]: ...

    def send(self, feed: WeightFeed, chunk: Chunk) -> None: ...

    def receive(self) -> Rollout: ...

    def watch(self) -> None: ...

    def close(self) -> None: ...


@dataclass
class WorkerSlot:
    """A worker and the requests handed to it, the chunk that it generates now first."""

    worker: Worker
    requests: deque[ChunkRequest] = field(default_factory=deque)


class BackgroundExecutor:
    """Generators beside the trainer, which get the oldest waiting chunk first.

    prefetch: chunks that a worker may hold, the one it generates included. A worker that holds its
    next chunk already need not wait until the busy trainer lets a thread of this class run.
    Subclasses choose the workers.
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

    def start(self) -> tuple[str, ...]:
        """Start all workers and wait until they are ready; the run's clock has not begun yet.
        Generators that say the same say it once."""
        started: list[Worker] = []
        notes: dict[str, None] = {}
        try:
            for slot in self._slots:
                slot.worker.spawn()
                started.append(slot.worker)
            for worker in started:
                notes |= dict.fromkeys(worker.wait_ready())
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
        return tuple(notes)

    def publish(self, weights: Weights) -> None:
        self._latest = weights

    def latest(self, per_token: bool) -> WeightFeed:
        def read() -> Weights:
            assert self._latest is not None, "no weights were published"
            return self._latest

        return LatestWeights(read, per_token)

    def prefetch(self, weights: Weights, chunks: Sequence[Chunk]) -> None:
        """Nothing to do: workers see the chunks that they have been sent in advance."""

    def submit(self, feed: WeightFeed, chunk: Chunk) -> Future[Rollout]:
        request = ChunkRequest(feed, chunk, Future())
        with self._changed:
            # A partial rollout is continued before younger chunks are begun.
            self._waiting.append(request)
            oldest_first = sorted(self._waiting, key=lambda one: (one.chunk.round, one.chunk.index))
            self._waiting = deque(oldest_first)
            self._hand_over()
        return request.future

    def _hand_over(self) -> None:
        """Hand waiting chunks to the workers that hold fewest, as long as one has room."""
        while self._waiting:
            slot = min(self._slots, key=lambda slot: len(slot.requests))
            if len(slot.requests) >= self._prefetch:
                return
            request = self._waiting.popleft()
            slot.requests.append(request)
            slot.worker.send(request.feed, request.chunk)
            self._changed.notify_all()

    def _serve(self, slot: WorkerSlot) -> None:
        """Receive one worker's rollouts until the executor closes or a worker fails (a thread)."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: slot.requests or self._closing.is_set())
            if self._closing.is_set() or self.failure is not None:
                return
            request = slot.requests[0]
            try:
                rollout = slot.worker.receive()
                self.on_done(rollout)
            except BaseException as error:
                if not self._closing.is_set():
                    self.failure = error
                request.future.set_exception(error)
                return
            with self._changed:
                slot.requests.popleft()
                self._hand_over()
            self._done(request.feed)
            request.future.set_result(rollout)

    def _done(self, feed: WeightFeed) -> None:
        """Called when a chunk of these weights is finished."""

    def _watch(self) -> None:
        while not self._closing.wait(WATCH_SECONDS):
            for slot in self._slots:
                slot.worker.watch()

    def close(self) -> None:
        """Stop at once; unfinished chunks are lost."""
        if self._closing.is_set():
            return
        with self._changed:
            self._closing.set()
            self._changed.notify_all()
        for slot in self._slots:
            slot.worker.close()
        for thread in getattr(self, "_threads", []):
            thread.join()

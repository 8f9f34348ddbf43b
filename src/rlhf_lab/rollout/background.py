"""Executors whose generators run beside the trainer: in threads, or in processes."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from rlhf_lab.rollout.executor import BackgroundExecutor, MakeWorker
from rlhf_lab.rollout.feeds import LatestWeights, is_following, source_of
from rlhf_lab.rollout.generator_main import following
from rlhf_lab.rollout.process import FailurePolicy, GeneratorProcess
from rlhf_lab.rollout.shared import SharedWeights
from rlhf_lab.rollout.worker import RolloutWorker
from rlhf_lab.types.data import Weights
from rlhf_lab.types.protocols import WeightFeed
from rlhf_lab.types.rollouts import Chunk, Rollout


@dataclass
class OrderedFeed:
    """A feed whose weights are read on this stream once the trainer's work on them is done.

    Weights in host memory are complete when they are handed over; those on a GPU are complete once
    its default stream, the trainer's, has come to this point.
    """

    feed: WeightFeed
    stream: Any
    _last: Weights | None = None

    @property
    def per_token(self) -> bool:
        """Whether newer weights may come while a chunk is written."""
        return is_following(self.feed)

    def at(self, step: int) -> Weights:
        weights = self.feed.at(step)
        if weights is not self._last:
            for tensor in weights.state.values():
                if tensor.device.type == "cuda":
                    self.stream.wait_stream(torch.cuda.default_stream(tensor.device))
                    # Its memory is not given to others before this stream has read it.
                    tensor.record_stream(self.stream)
            self._last = weights
        return weights


class OwnStream:
    """Runs a worker on a stream of its own; on a CPU it just runs it.

    Samples leave a worker in host memory, for which it has waited: no other stream needs to wait
    for its own. Made in the thread that built the worker, so that its models are there.
    """

    def __init__(self, device: torch.device) -> None:
        self._stream: Any = None
        if device.type == "cuda":
            # Before the trainer's large kernels: those of a decode step are short, and many.
            self._stream = torch.cuda.Stream(device, priority=-1)  # type: ignore[no-untyped-call]
            self._stream.wait_stream(torch.cuda.current_stream(device))

    def run(self, worker: RolloutWorker, feed: WeightFeed, chunk: Chunk) -> Rollout:
        """Run the worker on this CUDA stream."""
        if self._stream is None:
            return worker.run(feed, chunk)
        with torch.cuda.stream(self._stream):
            return worker.run(OrderedFeed(feed, self._stream), chunk)


class ThreadWorker:
    """A rollout worker with a model of its own, which runs in the thread that receives."""

    restarts = 0

    def __init__(self, make_worker: MakeWorker, number: int, device: torch.device) -> None:
        self._make_worker = make_worker
        self._number = number
        self._device = device
        self._worker: RolloutWorker | None = None
        self._sent: deque[tuple[WeightFeed, Chunk]] = deque()

    def spawn(self) -> None:
        self._worker = self._make_worker()
        self._stream = OwnStream(self._device)

    def wait_ready(self) -> tuple[str, ...]:
        """Nothing to wait for: `spawn` has built the worker."""
        assert self._worker is not None, "wait_ready before spawn"
        return self._worker.opening()

    def send(self, feed: WeightFeed, chunk: Chunk) -> None:
        self._sent.append((feed, chunk))

    def receive(self) -> Rollout:
        assert self._worker is not None, "receive before spawn"
        feed, chunk = self._sent.popleft()
        self._worker.prefetch(feed, list(following(source_of(feed), self._waiting())))
        rollout = self._stream.run(self._worker, feed, chunk)
        return replace(rollout, worker=self._number)

    def _waiting(self) -> list[tuple[int | bool, Chunk]]:
        return [(source_of(feed), chunk) for feed, chunk in self._sent.copy()]

    def watch(self) -> None:
        """Nothing to watch: a thread cannot be killed, and `receive` raises its errors."""

    def close(self) -> None:
        """Close what the generator started; the thread ends by itself."""
        if self._worker is not None:
            self._worker.close()


class ThreadExecutor(BackgroundExecutor):
    """Generators in threads of the trainer's process. make_workers: one for each. devices: of the
    same generators, all on the CPU if there are none."""

    def __init__(
        self,
        make_workers: Sequence[MakeWorker],
        prefetch: int,
        devices: Sequence[torch.device] = (),
    ) -> None:
        devices = devices or [torch.device("cpu")] * len(make_workers)
        places = zip(make_workers, devices, strict=True)
        super().__init__([ThreadWorker(m, n, d) for n, (m, d) in enumerate(places)], prefetch)


class ProcessExecutor(BackgroundExecutor):
    """Generators in processes. Each version's weights are written once, into shared memory.

    make_workers: picklable, each called in its new process. state: tensors with the names, shapes
    and dtypes of the policy. num_slots: versions that can be in use at the same time.
    """

    def __init__(
        self,
        make_workers: Sequence[MakeWorker],
        prefetch: int,
        state: Mapping[str, Tensor],
        num_slots: int,
        failures: FailurePolicy,
    ) -> None:
        self._shared = SharedWeights(state, num_slots)
        self._lock = threading.Lock()
        super().__init__(
            [GeneratorProcess(m, self._shared, n, failures) for n, m in enumerate(make_workers)],
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
    """The trainer's side of the feed never reads: the generator process reads shared memory."""
    raise NotImplementedError

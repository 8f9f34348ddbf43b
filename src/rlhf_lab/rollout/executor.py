"""Who runs the rollout workers: the caller itself, threads, or processes with their own core."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import Protocol

from safetensors.torch import load_file, save_file

from rlhf_lab.rollout.worker import RolloutWorker
from rlhf_lab.types import Chunk, Rollout, Weights

MakeWorker = Callable[[], RolloutWorker]


class Executor(Protocol):
    """`submit` hands a chunk over; `seconds_in_caller` is work done in the trainer's own time."""

    seconds_in_caller: float

    def start(self) -> None: ...

    def submit(self, weights: Weights, chunk: Chunk) -> Future[Rollout]: ...

    def close(self) -> None: ...


class InlineExecutor:
    """Generates at admission, in the caller's time: sync and lagged modes."""

    def __init__(self, make_worker: MakeWorker) -> None:
        self._make_worker = make_worker
        self.seconds_in_caller = 0.0

    def start(self) -> None:
        self._worker = self._make_worker()

    def submit(self, weights: Weights, chunk: Chunk) -> Future[Rollout]:
        future: Future[Rollout] = Future()
        rollout = self._worker.run(weights, chunk)
        self.seconds_in_caller += sum(rollout.seconds.values())
        future.set_result(rollout)
        return future

    def close(self) -> None:
        """Nothing to stop."""


class ThreadExecutor:
    """Background threads, each with a worker (and so a model) of its own."""

    def __init__(self, make_worker: MakeWorker, num_workers: int) -> None:
        self._num_workers = num_workers
        self._make_worker = make_worker
        self._local = threading.local()
        self.seconds_in_caller = 0.0

    def start(self) -> None:
        # Built here, one after the other: loading models in several threads at once is not safe.
        workers = [self._make_worker() for _ in range(self._num_workers)]
        self._pool = ThreadPoolExecutor(
            self._num_workers,
            thread_name_prefix="generator",
            initializer=lambda: setattr(self._local, "worker", workers.pop()),
        )

    def submit(self, weights: Weights, chunk: Chunk) -> Future[Rollout]:
        return self._pool.submit(self._run, weights, chunk)

    def _run(self, weights: Weights, chunk: Chunk) -> Rollout:
        worker: RolloutWorker = self._local.worker
        return worker.run(weights, chunk)

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)


class ProcessExecutor:
    """Background processes. A version's weights are written once, as a file that workers map.

    `make_worker` must be picklable: it is called in the new process.
    """

    def __init__(self, make_worker: MakeWorker, num_workers: int) -> None:
        self._num_workers = num_workers
        self._make_worker = make_worker
        self._files: dict[int, Path] = {}
        self._unfinished: dict[int, int] = {}
        self._lock = threading.Lock()
        self.seconds_in_caller = 0.0

    def start(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="rlhf_lab_weights_")
        self._pool = ProcessPoolExecutor(
            self._num_workers,
            mp_context=get_context("spawn"),
            initializer=_start_worker,
            initargs=(self._make_worker,),
        )
        # A pool starts its processes on demand: ask each for a sign of life, so that the run's
        # clock does not begin while they still load their models.
        for ready in [self._pool.submit(_ready) for _ in range(self._num_workers)]:
            ready.result()

    def submit(self, weights: Weights, chunk: Chunk) -> Future[Rollout]:
        version = weights.version
        with self._lock:
            if version not in self._files:
                self._files[version] = Path(self._folder.name) / f"{version}.safetensors"
                save_file(dict(weights.state), self._files[version])
            self._unfinished[version] = self._unfinished.get(version, 0) + 1
        future = self._pool.submit(_run, version, self._files[version], chunk)
        future.add_done_callback(lambda _: self._finished(version))
        return future

    def _finished(self, version: int) -> None:
        with self._lock:
            self._unfinished[version] -= 1
            for old in [v for v, count in self._unfinished.items() if not count and v < version]:
                self._files.pop(old).unlink()
                del self._unfinished[old]

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._folder.cleanup()


_worker: RolloutWorker
_weights: Weights | None = None


def _start_worker(make_worker: MakeWorker) -> None:
    global _worker
    # Ctrl-C reaches the whole process group; the trainer alone decides when generators stop.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_the_trainer, daemon=True).start()
    _worker = make_worker()


def _end_with_the_trainer() -> None:
    """A trainer that was killed cannot say so: its workers would wait for work for ever."""
    trainer = parent_process()
    if trainer is not None:
        trainer.join()
        os._exit(1)


def _ready() -> bool:
    return _worker is not None


def _run(version: int, path: Path, chunk: Chunk) -> Rollout:
    global _weights
    if _weights is None or _weights.version != version:
        _weights = Weights(version, load_file(path))
    return _worker.run(_weights, chunk)

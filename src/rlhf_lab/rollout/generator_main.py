"""The main function of a generator process: receives chunks, sends rollouts or errors."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import pickle
import signal
import tempfile
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from multiprocessing import parent_process
from multiprocessing.connection import Connection
from pathlib import Path
from typing import ClassVar

from torch import Tensor

from rlhf_lab.rollout.feeds import LatestWeights, are_together
from rlhf_lab.rollout.shared import SharedWeights
from rlhf_lab.rollout.worker import RolloutWorker
from rlhf_lab.runs.child import read_ahead, when_ended
from rlhf_lab.runs.memory import keep_freed_memory
from rlhf_lab.types.data import Weights
from rlhf_lab.types.protocols import WeightFeed
from rlhf_lab.types.rollouts import Chunk

# What faulthandler writes at a crash.
CRASHED = "Fatal Python error:"
CRASH_LINES = 12


class StackFile:
    """The trainer's side: a temporary file, whose name the generator removes once it has it open.

    No file is left behind then, whichever of the two is killed. answer_seconds: within which a
    process writes its stacks.
    """

    answer_seconds: ClassVar[float] = 0.5

    def __init__(self) -> None:
        descriptor, name = tempfile.mkstemp(prefix="rlhf_lab_generator_")
        self._file = os.fdopen(descriptor, encoding="utf-8", errors="replace")
        self.path = Path(name)

    def current(self, pid: int) -> str:
        """The stacks of all threads at this moment."""
        self._file.seek(0, os.SEEK_END)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGUSR2)
        time.sleep(self.answer_seconds)
        text = self._file.read().strip()
        return text or "no traceback: the process does not answer signals (is it stopped?)"

    def crash(self) -> str:
        """The stack of the crash that ended the process; "" if it did not crash."""
        with contextlib.suppress(OSError, ValueError):  # another thread has closed the file
            self._file.seek(0)
            _, mark, stack = self._file.read().rpartition(CRASHED)
            return "\n".join(["", *(mark + stack).splitlines()[:CRASH_LINES]]) if mark else ""
        return ""

    def close(self) -> None:
        self._file.close()
        self.path.unlink(missing_ok=True)


def write_stacks(path: Path) -> None:
    """The generator's side: write the stacks at SIGUSR2 and at a crash, as long as it lives."""
    file = path.open("w", encoding="utf-8")
    path.unlink()
    faulthandler.register(signal.SIGUSR2, file=file, all_threads=True, chain=False)
    faulthandler.enable(file=file, all_threads=False)


def serve(
    connection: Connection,
    make_worker: Callable[[], RolloutWorker],
    shared: SharedWeights,
    pulse: Tensor,
    stacks: Path,
) -> None:
    """Generate and score the chunks that come, until the trainer ends."""
    keep_freed_memory()
    write_stacks(stacks)
    if (trainer := parent_process()) is not None:
        when_ended(trainer.sentinel, lambda: os._exit(1))
    try:
        worker = make_worker()
    except BaseException as error:
        connection.send(("failed", portable(error)))
        return
    connection.send(("ready", worker.opening()))
    requests = read_ahead(connection)
    weights: Weights | None = None
    waiting: deque[tuple[int | bool, Chunk] | None] = deque()
    while (request := waiting.popleft() if waiting else requests.get()) is not None:
        source, chunk = request
        try:
            if isinstance(source, bool):
                feed: WeightFeed = LatestWeights(lambda: newest(shared), source)
            else:
                if weights is None or weights.version != source:
                    weights = shared.read(source)
                feed = weights
            while not requests.empty():
                waiting.append(requests.get())
            worker.prefetch(feed, list(following(source, waiting)))
            connection.send(("done", worker.run(feed, chunk, lambda: advance(pulse))))
        except Exception as error:
            connection.send(("failed", portable(error)))


def following(
    source: int | bool, waiting: Iterable[tuple[int | bool, Chunk] | None]
) -> Iterator[Chunk]:
    """The next waiting chunks, as long as they may be written together with one of this source."""
    for request in waiting:
        if request is None or not are_together(source, request[0]):
            return
        yield request[1]


_newest: Weights | None = None


def newest(shared: SharedWeights) -> Weights:
    """The newest version, copied unless it was the last one read."""
    global _newest
    while _newest is None or _newest.version != shared.newest():
        with contextlib.suppress(LookupError):  # overwritten by an even newer one: look again
            _newest = shared.read(shared.newest())
            break
    assert _newest is not None
    return _newest


def advance(pulse: Tensor) -> None:
    """Send a heartbeat."""
    pulse += 1


def portable(error: BaseException) -> tuple[Exception, str]:
    """An error that can be pickled, and its traceback as text."""
    text = "".join(traceback.format_exception(error))
    try:
        copy = pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}"), text
    return (copy if isinstance(copy, Exception) else RuntimeError(repr(error))), text

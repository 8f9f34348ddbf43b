"""The main function of a generator process: receives chunks, sends rollouts or errors."""

from __future__ import annotations

import contextlib
import os
import pickle
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from multiprocessing import parent_process
from multiprocessing.connection import Connection
from pathlib import Path

from torch import Tensor

from rlhf_lab.rollout.feeds import LatestWeights, are_together
from rlhf_lab.rollout.shared import SharedWeights
from rlhf_lab.rollout.stack_file import write_stacks
from rlhf_lab.rollout.worker import RolloutWorker
from rlhf_lab.runs.child_side import read_ahead, when_ended
from rlhf_lab.runs.memory import keep_freed_memory
from rlhf_lab.types.data import Weights
from rlhf_lab.types.protocols import WeightFeed
from rlhf_lab.types.rollouts import Chunk


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

"""The generator's own side of a process: chunks in, rollouts or errors out."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import pickle
import queue
import signal
import threading
import traceback
from collections.abc import Callable
from multiprocessing import parent_process
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from torch import Tensor

from rlhf_lab.rollout.feeds import LatestWeights
from rlhf_lab.rollout.shared import SharedWeights
from rlhf_lab.rollout.worker import RolloutWorker
from rlhf_lab.runs.memory import keep_freed_memory
from rlhf_lab.types.data import Weights
from rlhf_lab.types.protocols import WeightFeed


def serve(
    connection: Connection,
    make_worker: Callable[[], RolloutWorker],
    shared: SharedWeights,
    pulse: Tensor,
    trace: str,
) -> None:
    """Main of the process: chunks in, rollouts or errors out, until the trainer is gone."""
    keep_freed_memory()
    stacks = Path(trace).open("w", encoding="utf-8")  # noqa: SIM115  (open as long as we live)
    # Both sides have it open: no name is left behind, whoever is killed from here on.
    Path(trace).unlink()
    faulthandler.register(signal.SIGUSR2, file=stacks, all_threads=True, chain=False)
    # The trainer reads there what crashed.
    faulthandler.enable(file=stacks, all_threads=False)
    threading.Thread(target=end_with_the_trainer, daemon=True).start()
    # Read ahead in a thread: a trainer that hands over chunks must never wait for this one.
    requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
    try:
        worker = make_worker()
    except BaseException as error:
        connection.send(("failed", portable(error)))
        return
    connection.send(("ready", None))
    threading.Thread(target=read_requests, args=(connection, requests), daemon=True).start()
    held: Weights | None = None
    while (request := requests.get()) is not None:
        source, chunk = request
        try:
            if isinstance(source, bool):
                feed: WeightFeed = LatestWeights(lambda: newest(shared), source)
            else:
                if held is None or held.version != source:
                    held = shared.read(source)
                feed = held
            connection.send(("done", worker.run(feed, chunk, lambda: advance(pulse))))
        except Exception as error:
            connection.send(("failed", portable(error)))


def read_requests(connection: Connection, requests: queue.SimpleQueue[Any]) -> None:
    """Pass on what the trainer sends; None when it has closed the pipe."""
    try:
        while True:
            requests.put(connection.recv())
    except (EOFError, OSError):
        requests.put(None)


_newest: Weights | None = None


def newest(shared: SharedWeights) -> Weights:
    """The newest version, copied only if it is not the one that was read last."""
    global _newest
    while _newest is None or _newest.version != shared.newest():
        with contextlib.suppress(LookupError):  # overwritten by an even newer one: look again
            _newest = shared.read(shared.newest())
            break
    assert _newest is not None
    return _newest


def advance(pulse: Tensor) -> None:
    """Show that the process gets on with its work."""
    pulse += 1


def portable(error: BaseException) -> tuple[Exception, str]:
    """An error as the trainer can raise it, and its traceback as text."""
    text = "".join(traceback.format_exception(error))
    try:
        copy = pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}"), text
    return (copy if isinstance(copy, Exception) else RuntimeError(repr(error))), text


def end_with_the_trainer() -> None:
    """A trainer that was killed cannot say so: its workers would wait for work for ever."""
    trainer = parent_process()
    if trainer is not None:
        trainer.join()
        os._exit(1)

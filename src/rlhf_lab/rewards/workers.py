"""Processes that score samples at the same time, in the order of one.

They are plain subprocesses: generators are daemons of multiprocessing, which may have no such
children. A worker that takes too long is killed, and one that died is replaced.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import pickle
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from typing import Any

from rlhf_lab.rewards.worker_child import Failure, Item, Outcome, Scoring, late
from rlhf_lab.runs.child import PIPE, Child, RemoteTraceback, exit_text

START_SECONDS = 300.0
PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from rlhf_lab.rewards.worker_child import serve; serve(int(sys.argv[2]), int(sys.argv[3]))"
)
# Workers of a function that waits: more than a server's usual limit would be refused there.
MOST_WAITING = 8
# A function waits that takes this long for a sample, and leaves its core to others meanwhile.
WAITING_SECONDS = 0.02
WAITING_SHARE = 0.5
# Pieces of a chunk for each worker, so that slow samples of one are balanced by the others.
PIECES = 4

Needed = Callable[[int], bool]


@dataclass
class Worker:
    """A child, and the places of the items that it scores, in order."""

    child: Child
    deadline: float
    is_ready: bool = False
    piece: list[int] = field(default_factory=list)
    due: list[int] = field(default_factory=list)


class Workers:
    """Score by a number of processes; 0: by one, and by several where the scoring waits.

    They start with the first item, and end with this object. seconds: for one sample, after which
    it is given up; 0 for none.
    """

    def __init__(self, scoring: Scoring, num: int, seconds: float) -> None:
        self.key = pickle.dumps((scoring, num, seconds, os.getcwd()))
        self._scoring = scoring
        self._num = num
        self._seconds = seconds
        self._workers: list[Worker] = []
        self._ready: tuple[bool, Any] | None = None
        # Whether the scoring waits, once it is known.
        self._waits: bool | None = None
        # Whether outcomes are sent one by one, so that it is known which sample ended a process.
        self._is_careful = False
        # Also when Python ends.
        self._finalizer = weakref.finalize(self, close_all, self._workers)

    def facts(self) -> Any:
        """Facts of the scoring once it is loaded. Raises where it cannot be."""
        return self._known()[1]

    def outcomes(
        self, items: Sequence[Item], is_needed: Needed = lambda place: True
    ) -> Iterator[tuple[int, Outcome]]:
        """The outcome of each item, with its place, as it becomes known. Items that are not needed
        any more are left out."""
        due = deque(range(len(items)))
        is_whole = self._known()[0] if items else False
        try:
            while due or any(worker.due for worker in self._workers):
                self._hand_out(items, due, is_needed, is_whole)
                for worker in self._heard():
                    yield from self._received(worker, items, due, is_whole)
        finally:
            for worker in [one for one in self._workers if one.due]:
                self._end(worker)  # the caller wants no more

    def _known(self) -> tuple[bool, Any]:
        """Whether a chunk is scored as a whole, and facts, from the first worker."""
        if self._ready is None:
            worker = self._start()
            worker.child.connection.poll(START_SECONDS)
            self._hear_ready(worker)
        assert self._ready is not None
        return self._ready

    def _start(self) -> Worker:
        # -P: a file of the working folder, such as queue.py, must not hide one of Python's.
        python = [sys.executable, "-P", "-u", "-c", PROGRAM]
        words = [*python, json.dumps(sys.path), PIPE, str(os.getpid())]
        child = starter().submit(Child, words).result()
        worker = Worker(child, time.monotonic() + START_SECONDS)
        self._workers.append(worker)
        with contextlib.suppress(OSError):  # it died, which is heard
            worker.child.connection.send_bytes(pickle.dumps(self._scoring))
        return worker

    def _end(self, worker: Worker) -> None:
        self._workers.remove(worker)
        worker.child.close()

    def _hand_out(
        self, items: Sequence[Item], due: deque[int], is_needed: Needed, is_whole: bool
    ) -> None:
        """Give pieces of what is due to idle workers, and start as many as help."""
        for worker in [one for one in self._workers if one.child.exit_code is not None]:
            if not worker.due and worker.is_ready:
                self._end(worker)  # no sample is to blame for a death between two calls
        most = 1 if is_whole else self._num or (MOST_WAITING if self._waits else 1)
        size = len(items) if is_whole else self._size(len(items))
        num_busy = sum(bool(worker.due) for worker in self._workers)
        while len(self._workers) < min(most, num_busy - (-len(due) // size)):
            self._start()
        for worker in self._workers[:most]:
            if worker.is_ready and not worker.due:
                piece: list[int] = []
                while due and len(piece) < size:
                    place = due.popleft()
                    piece += [place] if is_needed(place) else []
                if piece:
                    self._send(worker, items, piece, is_whole)

    def _size(self, num: int) -> int:
        """Items of a piece: single ones until it is known that they take no time."""
        if self._num == 1:
            return num
        if self._waits is not False:
            return 1
        return -(-num // (PIECES * self._num)) if self._num else num

    def _send(self, worker: Worker, items: Sequence[Item], piece: list[int], whole: bool) -> None:
        worker.piece, worker.due = piece, list(piece)
        # Coroutines have a limit in the worker, which comes first.
        worker.deadline = self._deadline(len(piece) + 1 if whole else 1)
        with contextlib.suppress(OSError):  # it died, which is heard
            exact = bool(self._seconds) or self._is_careful
            worker.child.connection.send(([items[place] for place in piece], exact))

    def _deadline(self, num: int) -> float:
        return time.monotonic() + self._seconds * num if self._seconds else float("inf")

    def _heard(self) -> list[Worker]:
        """The workers that have sent something, have died, or are out of time; at least one."""
        busy = [worker for worker in self._workers if worker.due or not worker.is_ready]
        if not busy:
            return []
        left = min(worker.deadline for worker in busy) - time.monotonic()
        heard = wait(
            [worker.child.connection for worker in busy],
            None if left == float("inf") else max(0.0, left),
        )
        now = time.monotonic()
        return [
            worker for worker in busy if worker.child.connection in heard or worker.deadline <= now
        ]

    def _hear_ready(self, worker: Worker) -> None:
        """Take the first message of a worker. Raises where there is none, or it is a failure."""
        if not worker.child.connection.poll():
            self._end(worker)
            raise RuntimeError(f"loading it took more than {START_SECONDS:.0f} s")
        try:
            kind, content = worker.child.connection.recv()
        except (EOFError, OSError) as error:
            self._end(worker)
            code = exit_text(worker.child.exit_code)
            raise RuntimeError(f"loading it ended its process ({code})") from error
        if kind == "failed":
            self._end(worker)
            raise RuntimeError(f"loading it {content[0]}") from RemoteTraceback(content[1])
        worker.is_ready, worker.deadline = True, float("inf")
        self._ready = content

    def _received(
        self, worker: Worker, items: Sequence[Item], due: deque[int], is_whole: bool
    ) -> Iterator[tuple[int, Outcome]]:
        """What a worker has sent, or why it sends no more."""
        if not worker.is_ready:
            self._hear_ready(worker)
            return
        if not worker.child.connection.poll():
            self._end(worker)
            yield from self._blamed(worker, items, due, is_whole, is_late=True)
            return
        try:
            known, (wall, cpu) = worker.child.connection.recv()
        except (EOFError, OSError):
            self._end(worker)
            yield from self._blamed(worker, items, due, is_whole, is_late=False)
            return
        worker.deadline = self._deadline(1)
        is_waiting = wall >= WAITING_SECONDS and cpu < WAITING_SHARE * wall
        self._waits = self._waits or is_waiting
        for place, outcome in known:
            worker.due.remove(worker.piece[place])
            yield worker.piece[place], outcome

    def _blamed(
        self, worker: Worker, items: Sequence[Item], due: deque[int], is_whole: bool, is_late: bool
    ) -> Iterator[tuple[int, Outcome]]:
        """The failure of the item that a worker was at; those after it are due again, and all of
        them where it is not known which one that was."""
        is_known = self._is_careful or bool(self._seconds)
        num = len(worker.due) if is_whole else int(is_known or len(worker.due) == 1)
        blamed, rest = worker.due[:num], worker.due[num:]
        self._is_careful = True
        due.extendleft(reversed(rest))
        worker.due = []
        for place in blamed:
            item = items[place]
            code = exit_text(worker.child.exit_code)
            death = f"{item.example.uid}: {self._scoring.name} ended its process ({code}) on"
            yield (
                place,
                (
                    late(item, self._seconds)
                    if is_late
                    else Failure(f"{death} the answer {item.text!r}")
                ),
            )


@functools.cache
def starter() -> ThreadPoolExecutor:
    """A thread that lives as long as this process: a child ends with the thread that started it."""
    return ThreadPoolExecutor(1, "reward-workers")


def close_all(workers: list[Worker]) -> None:
    for worker in workers:
        worker.child.close()
    workers.clear()


# Those that checked a reward before the run, for the run to go on with.
_kept: dict[bytes, Workers] = {}
_keeping = threading.Lock()


def workers_for(scoring: Scoring, num: int, seconds: float) -> Workers:
    """Workers for a scoring: those that were kept, with what they have loaded, or others."""
    workers = Workers(scoring, num, seconds)
    with _keeping:
        return _kept.pop(workers.key, workers)


def keep(workers: Workers) -> None:
    """Keep workers for the next scorer of the same."""
    with _keeping:
        _kept[workers.key] = workers

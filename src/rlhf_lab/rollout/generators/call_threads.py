"""Threads that make calls: several at the same time, each for a limit of real seconds."""

from __future__ import annotations

import math
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rlhf_lab.types.heartbeat import beat

BEAT_SECONDS = 0.5


@dataclass(frozen=True)
class Raised:
    """An exception of a call."""

    error: BaseException


LATE = object()


class Worker(threading.Thread):
    """A thread that works on what it is given, and is idle in between: to start one takes longer
    than most calls. A daemon, since one that hangs must not keep the process from ending."""

    def __init__(self) -> None:
        super().__init__(name="environment", daemon=True)
        self.given: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

    def run(self) -> None:
        while True:
            self.given.get()()
            IDLE.append(self)


IDLE: deque[Worker] = deque()
# A forked process has none of its parent's threads.
os.register_at_fork(after_in_child=IDLE.clear)


def on_a_thread(work: Callable[[], None]) -> None:
    """Begin work on an idle thread, or on a new one. It must not raise."""
    try:
        worker = IDLE.pop()
    except IndexError:
        worker = Worker()
        worker.start()
    worker.given.put(work)


@dataclass(eq=False)
class ThreadCall:
    """A call. limit: seconds that it may take, infinite for any. result: what it returned, Raised,
    or LATE. seconds: that it took, 0 where it has not returned."""

    run: Callable[[], Any]
    limit: float
    result: Any = LATE
    seconds: float = 0.0
    is_ended: bool = False
    is_awaited: bool = False


class CallThreads:
    """Makes calls in the order in which they are begun, so many at the same time.

    A thread cannot be stopped from outside. One whose call takes too long is left to itself, and
    another takes its place; so a call that hangs costs a thread and no more.
    """

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._num_working = 0
        self._queue: deque[ThreadCall] = deque()
        self._started: dict[ThreadCall, float] = {}
        self._num_awaited = 0
        self._num_ended = 0
        self._changed = threading.Condition()

    def begin(self, calls: Sequence[ThreadCall]) -> None:
        """Begin calls, without waiting for them."""
        with self._changed:
            self._queue.extend(calls)
            for _ in range(min(len(calls), self._threads - self._num_working)):
                self._num_working += 1
                on_a_thread(self._work)

    def ended(self, calls: Sequence[ThreadCall]) -> list[bool]:
        """Whether each has ended by now: it has returned, raised, or is late."""
        with self._changed:
            self._give_up_late_ones()
            return [call.is_ended for call in calls]

    def wait(self, calls: Sequence[ThreadCall], for_one: bool = False) -> None:
        """Wait until all of these have ended, or one of them has.

        The process is reported as alive while all calls that may be waited for have a limit. Calls
        without a limit may hang, so that only their end is reported."""
        with self._changed:
            missing = [call for call in calls if not call.is_ended]
            self._num_awaited = len(missing)
            if for_one:
                self._num_awaited = int(bool(calls) and len(missing) == len(calls))
            for call in missing:
                call.is_awaited = True
            num_ended = self._num_ended
            while self._num_awaited > 0:
                self._changed.wait(self._until_late())
                self._give_up_late_ones()
                # The heartbeat is of the thread that waits, not of those that call.
                if self._have_limits or self._num_ended > num_ended:
                    beat()
                num_ended = self._num_ended
            for call in missing:
                call.is_awaited = False
        if calls:
            beat()

    def drop(self) -> None:
        """Begin nothing more, and wait for what has begun."""
        with self._changed:
            self._queue.clear()
            begun = list(self._started)
        self.wait(begun)

    @property
    def _have_limits(self) -> bool:
        return all(math.isfinite(call.limit) for call in (*self._started, *self._queue))

    def _until_late(self) -> float:
        """Seconds until a call may be late, or a heartbeat is due."""
        ends = (start + call.limit for call, start in self._started.items())
        return max(0.0, min(BEAT_SECONDS, min(ends, default=math.inf) - time.monotonic()))

    def _give_up_late_ones(self) -> None:
        now = time.monotonic()
        for call in [one for one, start in self._started.items() if now - start >= one.limit]:
            self._end(call)
            on_a_thread(self._work)

    def _end(self, call: ThreadCall) -> None:
        del self._started[call]
        call.is_ended = True
        self._num_ended += 1
        self._num_awaited -= call.is_awaited

    def _work(self) -> None:
        """Make calls until none is left, or this thread was given up."""
        while (call := self._taken()) is not None:
            result: Any
            try:
                result = call.run()
            except BaseException as error:
                result = Raised(error)
            if not self._is_kept(call, result):
                return

    def _taken(self) -> ThreadCall | None:
        with self._changed:
            if not self._queue:
                self._num_working -= 1
                return None
            call = self._queue.popleft()
            self._started[call] = time.monotonic()
            return call

    def _is_kept(self, call: ThreadCall, result: Any) -> bool:
        """Keep a result that is in time. Returns whether the call was not given up."""
        with self._changed:
            if call not in self._started:
                return False
            call.seconds = time.monotonic() - self._started[call]
            # The clock decides, not whether the thread that waits was woken before.
            if call.seconds < call.limit:
                call.result = result
            self._end(call)
            if self._num_awaited <= 0:
                self._changed.notify()
            return True

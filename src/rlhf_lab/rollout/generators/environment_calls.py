"""Calls of environments: several at the same time, each with a limit of real seconds."""

from __future__ import annotations

import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlhf_lab.rollout.generators.episode_options import EpisodeOptions, WhenLate
from rlhf_lab.types.errors import UserError


@dataclass(frozen=True)
class Call:
    """A call of an environment. place: task, row and turn, for errors. is_needed: without what it
    returns there is no episode."""

    place: str
    run: Callable[[], Any]
    is_needed: bool = False


@dataclass(frozen=True)
class EnvironmentCalls:
    """Makes calls of environments, of which each environment has one at a time.

    A thread cannot be stopped from outside. One whose call takes too long is left to itself, and
    another takes its place; so a hanging environment costs a thread and no more.
    """

    options: EpisodeOptions = field(default_factory=EpisodeOptions)

    def one(self, call: Call) -> Any:
        """What a call returns; see `all`."""
        return self.all([call])[0]

    def all(self, calls: Sequence[Call]) -> list[Any]:
        """What each call returns, in their order. Raises what the first of them raises, and
        UserError where one takes longer than episodes.step_seconds; with
        episodes.when_late=truncate it returns None, unless it is needed."""
        seconds, at_once = self.options.step_seconds, self.options.steps_at_once
        if not seconds and (at_once == 1 or len(calls) == 1):
            return [call.run() for call in calls]
        results = Batch(calls, seconds).run(min(at_once, len(calls)))
        return [self._kept(call, result) for call, result in zip(calls, results, strict=True)]

    def _kept(self, call: Call, result: Any) -> Any:
        if isinstance(result, Raised):
            raise result.error
        if result is not LATE:
            return result
        if call.is_needed or self.options.when_late is WhenLate.stop:
            raise UserError(
                f"{call.place}: the environment took longer than "
                f"episodes.step_seconds={self.options.step_seconds:g}: raise it, mend the "
                "environment, or pass episodes.when_late=truncate to end an episode with a step "
                "that is late"
            )
        return None


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


class Batch:
    """Calls that are made by threads. seconds: that each may take, 0 for any."""

    def __init__(self, calls: Sequence[Call], seconds: float) -> None:
        self._calls = calls
        self._seconds = seconds
        self._results: list[Any] = [LATE] * len(calls)
        self._next = 0
        self._started: dict[int, float] = {}
        self._changed = threading.Condition()

    def run(self, threads: int) -> list[Any]:
        """Make all calls. Returns what they returned, Raised, or LATE."""
        with self._changed:
            for _ in range(threads):
                on_a_thread(self._work)
            while not self._is_done:
                self._changed.wait(self._until_late())
                self._give_up_late_ones()
        return self._results

    @property
    def _is_done(self) -> bool:
        return self._next == len(self._calls) and not self._started

    def _until_late(self) -> float | None:
        """Seconds until a call may be late; None where none can be."""
        if not self._seconds:
            return None
        now = time.monotonic()
        return max(0.0, min(self._started.values(), default=now) + self._seconds - now)

    def _give_up_late_ones(self) -> None:
        if not self._seconds:
            return
        limit = time.monotonic() - self._seconds
        for index in [index for index, start in self._started.items() if start <= limit]:
            del self._started[index]
            on_a_thread(self._work)

    def _work(self) -> None:
        """Make calls until none is left, or this thread was given up."""
        while (index := self._taken()) is not None:
            result: Any
            try:
                result = self._calls[index].run()
            except BaseException as error:
                result = Raised(error)
            if not self._is_kept(index, result):
                return

    def _taken(self) -> int | None:
        with self._changed:
            index = self._next
            if index == len(self._calls):
                return None
            self._next += 1
            self._started[index] = time.monotonic()
            return index

    def _is_kept(self, index: int, result: Any) -> bool:
        """Keep a result, unless the call was given up."""
        with self._changed:
            if index not in self._started:
                return False
            del self._started[index]
            self._results[index] = result
            if self._is_done:
                self._changed.notify()
            return True
